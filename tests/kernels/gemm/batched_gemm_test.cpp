#include "quincunx/kernels/gemm/batched_gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "kernels/gemm/matrices.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

using ::testing::HasSubstr;

std::vector<float> slice(const std::vector<float>& values, int64_t begin, int64_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

// What gemm gives for one pair of matrices: gemm itself is measured against the reference in its own test.
std::vector<float> product(std::vector<float> a, std::vector<float> b, int64_t rows, int64_t inner, int64_t columns,
                           const GemmOptions& options = {}) {
  std::vector<float> output(static_cast<size_t>(rows * columns));
  EXPECT_TRUE(gemm(matrix(a, rows, inner), matrix(b, inner, columns), matrix(output, rows, columns), options).ok());
  return output;
}

TEST(BatchedGemm, EachProductHasTheBitsOfGemm) {
  for_each_dispatch_target([] {
    constexpr int64_t kBatch = 5, kRows = 9, kInner = 20, kColumns = 37;
    auto a = random_floats(kBatch * kRows * kInner, 1);
    auto b = random_floats(kBatch * kInner * kColumns, 2);
    for (const int threads : {1, 2, 7}) {
      set_num_threads(threads);
      std::vector<float> output(kBatch * kRows * kColumns);
      ASSERT_TRUE(batched_gemm(batch(a, kBatch, kRows, kInner), batch(b, kBatch, kInner, kColumns),
                               batch(output, kBatch, kRows, kColumns))
                      .ok());
      for (int64_t i = 0; i < kBatch; ++i) {
        EXPECT_EQ(slice(output, i * kRows * kColumns, kRows * kColumns),
                  product(slice(a, i * kRows * kInner, kRows * kInner),
                          slice(b, i * kInner * kColumns, kInner * kColumns), kRows, kInner, kColumns));
      }
    }
    set_num_threads(0);
  });
}

TEST(BatchedGemm, TakesTransposedAndSharedMatrices) {
  constexpr int64_t kBatch = 3, kRows = 4, kInner = 6, kColumns = 18;
  auto a = random_floats(kBatch * kRows * kInner, 3);
  auto b = random_floats(kInner * kColumns, 4);
  // a is stored [batch, inner, rows]; b is one matrix stored [columns, inner].
  const TensorView a_view = TensorView::strided(a.data(), DType::kFloat32, std::array{kBatch, kRows, kInner},
                                                std::array{kRows * kInner, int64_t{1}, kRows})
                                .value();
  const TensorView b_view = TensorView::strided(b.data(), DType::kFloat32, std::array{kBatch, kInner, kColumns},
                                                std::array{int64_t{0}, int64_t{1}, kInner})
                                .value();
  std::vector<float> output(kBatch * kRows * kColumns);
  ASSERT_TRUE(batched_gemm(a_view, b_view, batch(output, kBatch, kRows, kColumns)).ok());
  for (int64_t p = 0; p < kBatch; ++p) {
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        double sum = 0.0;
        for (int64_t k = 0; k < kInner; ++k) {
          sum += static_cast<double>(a[(p * kInner + k) * kRows + i]) * b[j * kInner + k];
        }
        ASSERT_NEAR(output[(p * kRows + i) * kColumns + j], sum, 6 * 16 * 0x1p-24);
      }
    }
  }
}

TEST(BatchedGemm, BatchedOptionsReachTheirOwnProduct) {
  constexpr int64_t kBatch = 2, kRows = 3, kInner = 5, kColumns = 4;
  auto a = random_floats(kBatch * kRows * kInner, 5);
  auto b = random_floats(kBatch * kInner * kColumns, 6);
  auto bias = random_floats(kBatch * kColumns, 7);
  auto residual = random_floats(kBatch * kRows * kColumns, 8);
  const TensorView bias_view = matrix(bias, kBatch, kColumns);
  const TensorView residual_view = batch(residual, kBatch, kRows, kColumns);
  GemmOptions options;
  options.bias = &bias_view;
  options.residual = &residual_view;
  std::vector<float> output(kBatch * kRows * kColumns);
  ASSERT_TRUE(batched_gemm(batch(a, kBatch, kRows, kInner), batch(b, kBatch, kInner, kColumns),
                           batch(output, kBatch, kRows, kColumns), options)
                  .ok());
  for (int64_t i = 0; i < kBatch; ++i) {
    auto own_bias = slice(bias, i * kColumns, kColumns);
    auto own_residual = slice(residual, i * kRows * kColumns, kRows * kColumns);
    const TensorView own_bias_view = vector(own_bias);
    const TensorView own_residual_view = matrix(own_residual, kRows, kColumns);
    GemmOptions own;
    own.bias = &own_bias_view;
    own.residual = &own_residual_view;
    EXPECT_EQ(slice(output, i * kRows * kColumns, kRows * kColumns),
              product(slice(a, i * kRows * kInner, kRows * kInner), slice(b, i * kInner * kColumns, kInner * kColumns),
                      kRows, kInner, kColumns, own));
  }
}

TEST(BatchedGemm, BadInputNamesTheArgument) {
  auto values = random_floats(200, 9);
  std::vector<float> output(24);
  const TensorView a = batch(values, 2, 3, 5);
  const TensorView b = batch(values, 2, 5, 4);
  EXPECT_THAT(batched_gemm(a, batch(values, 3, 5, 4), batch(output, 2, 3, 4)).message(),
              HasSubstr("batches of one size"));
  EXPECT_THAT(batched_gemm(a, batch(values, 2, 6, 4), batch(output, 2, 3, 4)).message(),
              HasSubstr("a: expected 6 columns"));
  EXPECT_THAT(batched_gemm(a, b, batch(values, 2, 3, 4)).message(), HasSubstr("overlaps a"));
  const TensorView bias = matrix(values, 3, 4);
  GemmOptions options;
  options.bias = &bias;
  EXPECT_THAT(batched_gemm(a, b, batch(output, 2, 3, 4), options).message(), HasSubstr("bias: expected 2 parts"));
  std::vector<float> none;
  EXPECT_TRUE(batched_gemm(batch(none, 0, 3, 5), batch(none, 0, 5, 4), batch(none, 0, 3, 4)).ok());
}

TEST(BatchedGemm, AnEmptyInnerDimensionGivesZeros) {
  std::vector<float> none, output(12, 9.0f);
  ASSERT_TRUE(batched_gemm(batch(none, 2, 2, 0), batch(none, 2, 0, 3), batch(output, 2, 2, 3)).ok());
  EXPECT_EQ(output, std::vector<float>(12, 0.0f));
}

TEST(GroupedGemm, AnEmptyInnerDimensionGivesZeros) {
  std::vector<float> none, output(12, 9.0f);
  const PackedGroups packed = pack_groups(batch(none, 2, 0, 3), none).value();
  ASSERT_TRUE(grouped_gemm(matrix(none, 4, 0), packed, std::vector<int64_t>{0, 1, 4}, matrix(output, 4, 3)).ok());
  EXPECT_EQ(output, std::vector<float>(12, 0.0f));
}

struct Experts {
  static constexpr int64_t kGroups = 4, kInner = 33, kColumns = 50;
  std::vector<float> weights = random_floats(kGroups * kInner * kColumns, 10);
  std::vector<float> storage =
      std::vector<float>(static_cast<size_t>(packed_groups_size(kGroups, kInner, kColumns).value()));
  PackedGroups packed = pack_groups(batch(weights, kGroups, kInner, kColumns), storage).value();
};

TEST(GroupedGemm, EachGroupHasTheBitsOfGemm) {
  for_each_dispatch_target([] {
    Experts experts;
    constexpr int64_t kTokens = 20;
    const std::vector<int64_t> offsets{0, 7, 7, 8, kTokens};
    auto a = random_floats(kTokens * Experts::kInner, 11);
    auto bias = random_floats(Experts::kGroups * Experts::kColumns, 12);
    auto row_scale = random_floats(kTokens, 13);
    const TensorView bias_view = matrix(bias, Experts::kGroups, Experts::kColumns);
    const TensorView row_scale_view = vector(row_scale);
    GemmOptions options;
    options.bias = &bias_view;
    options.row_scale = &row_scale_view;
    options.activation = Activation::kRelu;
    for (const int threads : {1, 2, 7}) {
      set_num_threads(threads);
      std::vector<float> output(kTokens * Experts::kColumns, 9.0f);
      ASSERT_TRUE(grouped_gemm(matrix(a, kTokens, Experts::kInner), experts.packed, offsets,
                               matrix(output, kTokens, Experts::kColumns), options)
                      .ok());
      for (int64_t group = 0; group < Experts::kGroups; ++group) {
        const int64_t begin = offsets[group];
        const int64_t rows = offsets[group + 1] - begin;
        if (rows == 0) continue;
        auto own_bias = slice(bias, group * Experts::kColumns, Experts::kColumns);
        auto own_scale = slice(row_scale, begin, rows);
        const TensorView own_bias_view = vector(own_bias);
        const TensorView own_scale_view = vector(own_scale);
        GemmOptions own = options;
        own.bias = &own_bias_view;
        own.row_scale = &own_scale_view;
        EXPECT_EQ(slice(output, begin * Experts::kColumns, rows * Experts::kColumns),
                  product(slice(a, begin * Experts::kInner, rows * Experts::kInner),
                          slice(experts.weights, group * Experts::kInner * Experts::kColumns,
                                Experts::kInner * Experts::kColumns),
                          rows, Experts::kInner, Experts::kColumns, own));
      }
    }
    set_num_threads(0);
  });
}

TEST(GroupedGemm, BadOffsetsAreNamed) {
  Experts experts;
  auto a = random_floats(6 * Experts::kInner, 14);
  std::vector<float> output(6 * Experts::kColumns);
  const auto run = [&](std::vector<int64_t> offsets) {
    return grouped_gemm(matrix(a, 6, Experts::kInner), experts.packed, offsets, matrix(output, 6, Experts::kColumns))
        .message();
  };
  EXPECT_THAT(run({0, 6}), HasSubstr("offsets: expected 5 numbers for 4 groups, got 2"));
  EXPECT_THAT(run({0, 4, 3, 5, 6}), HasSubstr("offsets: expected rising numbers, got 3 after 4"));
  EXPECT_THAT(run({0, 1, 2, 3, 5}), HasSubstr("offsets: expected 0 first and 6"));
  EXPECT_THAT(run({1, 1, 2, 3, 6}), HasSubstr("offsets: expected 0 first"));
  const auto no_token = grouped_gemm(matrix(a, 0, Experts::kInner), experts.packed, std::vector<int64_t>(5, 0),
                                     matrix(output, 0, Experts::kColumns));
  EXPECT_TRUE(no_token.ok()) << no_token;
}

TEST(GroupedGemm, BadWeightsAreNamed) {
  Experts experts;
  EXPECT_THAT(pack_groups(matrix(experts.weights, 4, 4), experts.storage).status().message(),
              HasSubstr("b: expected three dimensions"));
  EXPECT_THAT(pack_groups(batch(experts.weights, 4, 33, 50), std::span(experts.storage).first(9)).status().message(),
              HasSubstr("storage: expected"));
  EXPECT_EQ(packed_groups_size(int64_t{1} << 40, int64_t{1} << 20, 16).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(packed_groups_size(-1, 2, 2).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace qx::kernels
