#include "quincunx/kernels/gemm/gemm.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "quincunx/kernels/gemm/gemm_kernel.h"
#include "quincunx/kernels/gemm/gemm_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

using Shape = std::array<int64_t, 2>;

TensorView matrix(std::vector<float>& data, int64_t rows, int64_t columns) {
  return TensorView::contiguous(data.data(), DType::kFloat32, Shape{rows, columns}).value();
}

TensorView transposed(const TensorView& view) {
  return TensorView::strided(view.data(), view.dtype(), Shape{view.size(1), view.size(0)},
                             Shape{view.stride(1), view.stride(0)})
      .value();
}

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

struct Packed {
  std::vector<float> storage;
  PackedMatrix matrix;
};
Packed packed(const TensorView& b) {
  Packed result;
  result.storage.resize(static_cast<size_t>(packed_matrix_size(b.size(0), b.size(1)).value()));
  result.matrix = pack_b(b, result.storage).value();
  return result;
}

// |sum computed - exact| <= inner * 2^-24 * sum |a b| holds for any order of summation, rounded or fused.
double sum_bound(const std::vector<float>& a, const std::vector<float>& b, int64_t inner, int64_t columns, int64_t i,
                 int64_t j) {
  double magnitude = 0.0;
  for (int64_t k = 0; k < inner; ++k) magnitude += std::abs(static_cast<double>(a[i * inner + k]) * b[k * columns + j]);
  return static_cast<double>(inner + 2) * 0x1p-24 * magnitude;
}

struct Problem {
  int64_t rows, inner, columns;
};

void expect_near_reference(const Problem& p, const GemmOptions& options, const std::vector<float>& a,
                           const std::vector<float>& b, const std::vector<float>& bias,
                           const std::vector<float>& residual, const std::vector<float>& output) {
  std::vector<double> expected(output.size());
  gemm_reference(a.data(), b.data(), p.rows, p.inner, p.columns, options.scale,
                 options.bias != nullptr ? bias.data() : nullptr, options.activation,
                 options.residual != nullptr ? residual.data() : nullptr, expected.data());
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t j = 0; j < p.columns; ++j) {
      const double want = expected[i * p.columns + j];
      // The activations' slopes are below 1.13, and their own error below 2^-21 of the larger of argument and result.
      const double argument = options.scale * sum_bound(a, b, p.inner, p.columns, i, j);
      const double bound = 1.2 * argument + 0x1p-21 * (1.0 + std::abs(want) + 3.0);
      ASSERT_NEAR(output[i * p.columns + j], want, bound)
          << p.rows << "x" << p.inner << "x" << p.columns << " at " << i << ", " << j;
    }
  }
}

class GemmOnEachTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(Targets, GemmOnEachTarget, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

TEST_P(GemmOnEachTarget, RunsTheKernelOfTheTarget) {
  const int64_t expected = GetParam() <= HWY_AVX2 ? 6 : 2;
  EXPECT_EQ(tile_rows(100), expected);
  EXPECT_EQ(tile_rows(16), GetParam() <= HWY_AVX3 ? 8 : expected);
}

TEST_P(GemmOnEachTarget, EqualsTheReferenceForAllTileShapes) {
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 14, 15, 27, 29, 100}) {
    for (const int64_t columns : {1, 15, 16, 17, 31, 33, 64, 100, 129}) {
      const Problem p{rows, 19, columns};
      auto a = random_floats(rows * p.inner, 1);
      auto b = random_floats(p.inner * columns, 2);
      std::vector<float> output(static_cast<size_t>(rows * columns), 7.0f);
      const TensorView b_view = matrix(b, p.inner, columns);
      ASSERT_TRUE(gemm(matrix(a, rows, p.inner), packed(b_view).matrix, matrix(output, rows, columns)).ok());
      expect_near_reference(p, {}, a, b, {}, {}, output);
    }
  }
}

TEST_P(GemmOnEachTarget, EqualsTheReferenceForAllInnerSizes) {
  for (const int64_t inner : {1, 2, 3, 4, 5, 767, 768, 769, 1537}) {
    const Problem p{9, inner, 21};
    auto a = random_floats(p.rows * inner, 3);
    auto b = random_floats(inner * p.columns, 4);
    std::vector<float> output(static_cast<size_t>(p.rows * p.columns));
    ASSERT_TRUE(gemm(matrix(a, p.rows, inner), matrix(b, inner, p.columns), matrix(output, p.rows, p.columns)).ok());
    expect_near_reference(p, {}, a, b, {}, {}, output);
  }
}

TEST_P(GemmOnEachTarget, AppliesEveryEpilogue) {
  const Problem p{7, 800, 37};
  auto a = random_floats(p.rows * p.inner, 5);
  auto b = random_floats(p.inner * p.columns, 6);
  auto bias = random_floats(p.columns, 7);
  auto residual = random_floats(p.rows * p.columns, 8);
  const TensorView bias_view = TensorView::contiguous(bias.data(), DType::kFloat32, std::array{p.columns}).value();
  const TensorView residual_view = matrix(residual, p.rows, p.columns);
  for (const auto activation :
       {Activation::kNone, Activation::kRelu, Activation::kGeluTanh, Activation::kGeluErf, Activation::kSilu}) {
    for (int parts = 0; parts < 8; ++parts) {
      GemmOptions options;
      options.activation = activation;
      options.scale = (parts & 1) != 0 ? 0.05f : 1.0f;
      options.bias = (parts & 2) != 0 ? &bias_view : nullptr;
      options.residual = (parts & 4) != 0 ? &residual_view : nullptr;
      std::vector<float> output(static_cast<size_t>(p.rows * p.columns));
      ASSERT_TRUE(
          gemm(matrix(a, p.rows, p.inner), matrix(b, p.inner, p.columns), matrix(output, p.rows, p.columns), options)
              .ok());
      expect_near_reference(p, options, a, b, bias, residual, output);
    }
  }
}

TEST_P(GemmOnEachTarget, TransposedAndStridedOperandsGiveTheSameBits) {
  const Problem p{13, 45, 50};
  auto a = random_floats(p.rows * p.inner, 9);
  auto b = random_floats(p.inner * p.columns, 10);
  std::vector<float> expected(static_cast<size_t>(p.rows * p.columns));
  ASSERT_TRUE(
      gemm(matrix(a, p.rows, p.inner), matrix(b, p.inner, p.columns), matrix(expected, p.rows, p.columns)).ok());

  std::vector<float> a_columns(a.size()), b_columns(b.size());
  for (int64_t k = 0; k < p.inner; ++k) {
    for (int64_t i = 0; i < p.rows; ++i) a_columns[k * p.rows + i] = a[i * p.inner + k];
    for (int64_t j = 0; j < p.columns; ++j) b_columns[j * p.inner + k] = b[k * p.columns + j];
  }
  std::vector<float> output(expected.size());
  const TensorView a_view = transposed(matrix(a_columns, p.inner, p.rows));
  const TensorView b_view = transposed(matrix(b_columns, p.columns, p.inner));
  ASSERT_TRUE(gemm(a_view, b_view, matrix(output, p.rows, p.columns)).ok());
  EXPECT_EQ(output, expected);

  // Column-major output, residual and rows of A in reverse.
  std::vector<float> zeros(expected.size(), 0.0f), columns_first(expected.size());
  const TensorView zeros_view = transposed(matrix(zeros, p.columns, p.rows));
  GemmOptions options;
  options.residual = &zeros_view;
  const TensorView reversed = TensorView::strided(a.data() + (p.rows - 1) * p.inner, DType::kFloat32,
                                                  Shape{p.rows, p.inner}, Shape{-p.inner, 1})
                                  .value();
  ASSERT_TRUE(
      gemm(reversed, packed(b_view).matrix, transposed(matrix(columns_first, p.columns, p.rows)), options).ok());
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t j = 0; j < p.columns; ++j) {
      ASSERT_EQ(columns_first[j * p.rows + i], expected[(p.rows - 1 - i) * p.columns + j]);
    }
  }
}

TEST_P(GemmOnEachTarget, RowsDoNotDependOnTheNumberOfRows) {
  const Problem p{31, 900, 200};
  auto a = random_floats(p.rows * p.inner, 11);
  auto b = random_floats(p.inner * p.columns, 12);
  const Packed weights = packed(matrix(b, p.inner, p.columns));
  std::vector<float> all(static_cast<size_t>(p.rows * p.columns));
  ASSERT_TRUE(gemm(matrix(a, p.rows, p.inner), weights.matrix, matrix(all, p.rows, p.columns)).ok());
  for (const int64_t rows : {1, 2, 3, 5, 9, 16}) {
    std::vector<float> some(static_cast<size_t>(rows * p.columns));
    ASSERT_TRUE(gemm(matrix(a, rows, p.inner), weights.matrix, matrix(some, rows, p.columns)).ok());
    EXPECT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0) << rows << " rows";
  }
}

// Tiles without an epilogue are summed in runs, those with one by one.
TEST_P(GemmOnEachTarget, AnEpilogueThatAddsNothingLeavesTheBits) {
  for (const Problem& p : {Problem{29, 24, 330}, Problem{100, 800, 64}, Problem{24, 1600, 200}}) {
    auto a = random_floats(p.rows * p.inner, 21);
    auto b = random_floats(p.inner * p.columns, 22);
    std::vector<float> zeros(static_cast<size_t>(p.columns), 0.0f);
    const TensorView bias = TensorView::contiguous(zeros.data(), DType::kFloat32, std::array{p.columns}).value();
    GemmOptions options;
    options.bias = &bias;
    const Packed weights = packed(matrix(b, p.inner, p.columns));
    std::vector<float> plain(static_cast<size_t>(p.rows * p.columns), 7.0f), with_bias = plain;
    ASSERT_TRUE(gemm(matrix(a, p.rows, p.inner), weights.matrix, matrix(plain, p.rows, p.columns)).ok());
    ASSERT_TRUE(gemm(matrix(a, p.rows, p.inner), weights.matrix, matrix(with_bias, p.rows, p.columns), options).ok());
    EXPECT_EQ(plain, with_bias) << p.rows << " x " << p.inner << " x " << p.columns;
  }
}

TEST_P(GemmOnEachTarget, ThreadsDoNotChangeABit) {
  for (const Problem& p : {Problem{1, 700, 2000}, Problem{150, 800, 300}, Problem{5, 2000, 160}}) {
    auto a = random_floats(p.rows * p.inner, 13);
    auto b = random_floats(p.inner * p.columns, 14);
    std::vector<float> expected;
    for (const int threads : {1, 2, 3, 7}) {
      set_num_threads(threads);
      std::vector<float> output(static_cast<size_t>(p.rows * p.columns));
      ASSERT_TRUE(
          gemm(matrix(a, p.rows, p.inner), matrix(b, p.inner, p.columns), matrix(output, p.rows, p.columns)).ok());
      if (expected.empty()) expected = output;
      EXPECT_EQ(std::memcmp(output.data(), expected.data(), output.size() * sizeof(float)), 0) << threads << " threads";
    }
    set_num_threads(0);
  }
}

TEST_P(GemmOnEachTarget, KeepsNaNInfinityAndDenormals) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Problem p{3, 20, 18};
  std::vector<float> a(static_cast<size_t>(p.rows * p.inner), 0.0f);
  std::vector<float> b(static_cast<size_t>(p.inner * p.columns), 1.0f);
  a[0] = std::numeric_limits<float>::quiet_NaN();
  a[p.inner] = kInfinity;
  a[2 * p.inner] = 1e-40f;
  for (const auto activation : {Activation::kNone, Activation::kRelu}) {
    GemmOptions options;
    options.activation = activation;
    std::vector<float> output(static_cast<size_t>(p.rows * p.columns));
    ASSERT_TRUE(
        gemm(matrix(a, p.rows, p.inner), matrix(b, p.inner, p.columns), matrix(output, p.rows, p.columns), options)
            .ok());
    for (int64_t j = 0; j < p.columns; ++j) {
      EXPECT_TRUE(std::isnan(output[j]));
      EXPECT_EQ(output[p.columns + j], kInfinity);
      EXPECT_EQ(output[2 * p.columns + j], 1e-40f);
    }
  }
}

TEST_P(GemmOnEachTarget, PaddingOfBDoesNotReachTheOutput) {
  // 0 * infinity in the padding of the last panel would be NaN; only the padding may hold it.
  std::vector<float> a{std::numeric_limits<float>::infinity()};
  std::vector<float> b{2.0f};
  std::vector<float> output(4, 5.0f);
  ASSERT_TRUE(gemm(matrix(a, 1, 1), matrix(b, 1, 1), matrix(output, 1, 1)).ok());
  EXPECT_EQ(output[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(output[1], 5.0f);
}

TEST_P(GemmOnEachTarget, AnEmptyInnerDimensionGivesTheEpilogueOfZero) {
  std::vector<float> none, bias{1.0f, -2.0f, 3.0f}, output(6, 9.0f);
  const TensorView bias_view = TensorView::contiguous(bias.data(), DType::kFloat32, std::array<int64_t, 1>{3}).value();
  GemmOptions options;
  options.bias = &bias_view;
  options.activation = Activation::kRelu;
  ASSERT_TRUE(gemm(matrix(none, 2, 0), matrix(none, 0, 3), matrix(output, 2, 3), options).ok());
  EXPECT_EQ(output, (std::vector<float>{1.0f, 0.0f, 3.0f, 1.0f, 0.0f, 3.0f}));
}

TEST_P(GemmOnEachTarget, EmptyOutputsAreFine) {
  std::vector<float> none, b(6, 1.0f);
  EXPECT_TRUE(gemm(matrix(none, 0, 2), matrix(b, 2, 3), matrix(none, 0, 3)).ok());
  EXPECT_TRUE(gemm(matrix(b, 3, 2), matrix(none, 2, 0), matrix(none, 3, 0)).ok());
}

}  // namespace
}  // namespace qx::kernels
