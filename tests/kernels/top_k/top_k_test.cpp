#include "quincunx/kernels/top_k/top_k.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/top_k/selection.h"
#include "quincunx/kernels/top_k/top_k_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TensorView index_view(std::vector<int64_t>& values, const std::vector<int64_t>& shape) {
  return contiguous_view(values.data(), DType::kInt64, shape);
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// Few distinct values, so that ties abound, and NaN, infinities and both zeros.
std::vector<float> difficult_values(int64_t count, uint32_t seed) {
  std::vector<float> x = normal_values(count, seed, 0, 3);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::round(x[i]);
    if (i % 17 == 3) x[i] = kNaN;
    if (i % 29 == 5) x[i] = i % 2 == 0 ? kInfinity : -kInfinity;
    if (i % 13 == 6) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
    if (i % 31 == 9) x[i] = -0x1p-149f;
  }
  return x;
}

TEST(TopK, GivesTheFirstElementsOfTheSortedRowAtAnyLength) {
  for_each_dispatch_target([] {
    for (const int64_t n : {1, 2, 31, 32, 33, 65, 500, 1500}) {
      for (const bool plain : {false, true}) {
        std::vector<float> x = plain ? normal_values(n, 2) : difficult_values(n, 1);
        for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{5}, n / 5, n / 2, n}) {
          if (k > n) continue;
          for (const bool largest : {false, true}) {
            std::vector<float> values(static_cast<size_t>(k) + 1, 77);
            std::vector<int64_t> indices(values.size(), 77);
            ASSERT_TRUE(top_k(f32_view(x, {n}), largest, f32_view(values, {k}), index_view(indices, {k})).ok());
            const std::vector<int64_t> expected = sorted_indices_reference(x, largest);
            for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
              ASSERT_EQ(indices[i], expected[i]) << "n " << n << " k " << k;
              ASSERT_TRUE(same_bits(values[i], x[static_cast<size_t>(expected[i])]));
            }
            ASSERT_EQ(values.back(), 77);
            ASSERT_EQ(indices.back(), 77);
          }
        }
      }
    }
  });
}

TEST(TopK, FindsASmallPartOfALongRowWithRisingValues) {
  for_each_dispatch_target([] {
    std::vector<float> x(20'000), values(3);
    std::vector<int64_t> indices(3);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    ASSERT_TRUE(top_k(f32_view(x, {20'000}), true, f32_view(values, {3}), index_view(indices, {3})).ok());
    EXPECT_EQ(indices, (std::vector<int64_t>{19'999, 19'998, 19'997}));
    x[12'345] = kNaN;
    ASSERT_TRUE(top_k(f32_view(x, {20'000}), true, f32_view(values, {3}), index_view(indices, {3})).ok());
    EXPECT_EQ(indices, (std::vector<int64_t>{12'345, 19'999, 19'998}));
    ASSERT_TRUE(top_k(f32_view(x, {20'000}), false, f32_view(values, {3}), index_view(indices, {3})).ok());
    EXPECT_EQ(indices, (std::vector<int64_t>{0, 1, 2}));
  });
}

TEST(Sort, IsStableAndPutsNaNLastAscendingAndFirstDescending) {
  std::vector<float> x = {2, kNaN, -0.0f, 0.0f, -kInfinity, 2, kNaN, kInfinity}, values(8);
  std::vector<int64_t> indices(8);
  ASSERT_TRUE(sort(f32_view(x, {8}), false, f32_view(values, {8}), index_view(indices, {8})).ok());
  EXPECT_EQ(indices, (std::vector<int64_t>{4, 2, 3, 0, 5, 7, 1, 6}));
  EXPECT_TRUE(std::signbit(values[1]));
  ASSERT_TRUE(sort(f32_view(x, {8}), true, f32_view(values, {8}), index_view(indices, {8})).ok());
  EXPECT_EQ(indices, (std::vector<int64_t>{1, 6, 7, 0, 5, 2, 3, 4}));
}

TEST(Sort, OrdersHalfPrecisionStridedColumnsInPlace) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    constexpr int64_t kRows = 3, kN = 333;
    std::vector<uint16_t> x = narrowed(difficult_values(kRows * kN, 3), dtype);
    const std::vector<uint16_t> before = x;
    std::vector<int64_t> indices(x.size());
    // Rows of the view are columns of memory, for the values as for the indices.
    const TensorView view = strided_view(x.data(), dtype, {kRows, kN}, {1, kRows});
    ASSERT_TRUE(sort(view, true, view, strided_view(indices.data(), DType::kInt64, {kRows, kN}, {1, kRows})).ok());
    for (size_t r = 0; r < kRows; ++r) {
      std::vector<uint16_t> row;
      for (size_t i = 0; i < kN; ++i) row.push_back(before[i * kRows + r]);
      const std::vector<int64_t> expected = sorted_indices_reference(widened(row, dtype), true);
      for (size_t i = 0; i < kN; ++i) {
        ASSERT_EQ(indices[i * kRows + r], expected[i]);
        ASSERT_EQ(x[i * kRows + r], row[static_cast<size_t>(expected[i])]);
      }
    }
  }
}

TEST(Sort, GivesTheSameBitsForAnyNumberOfThreads) {
  std::vector<float> x = difficult_values(60 * 1000, 4), one(x.size()), many(x.size());
  std::vector<int64_t> first(x.size()), second(x.size());
  set_num_threads(1);
  ASSERT_TRUE(sort(f32_view(x, {60, 1000}), false, f32_view(one, {60, 1000}), index_view(first, {60, 1000})).ok());
  set_num_threads(3);
  ASSERT_TRUE(sort(f32_view(x, {60, 1000}), false, f32_view(many, {60, 1000}), index_view(second, {60, 1000})).ok());
  set_num_threads(0);
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0);
}

TEST(NextBlockAbove, StopsAtTheBlockWithALargerElement) {
  for_each_dispatch_target([] {
    std::vector<float> x(100, 1);
    EXPECT_EQ(next_block_above(x, 0, 1), 100);
    x[70] = 2;
    EXPECT_EQ(next_block_above(x, 0, 1), 64);
    EXPECT_EQ(next_block_above(x, 71, 1), 100);
    x[99] = kNaN;
    EXPECT_EQ(next_block_above(x, 71, 1), 71);
  });
}

TEST(TopK, AcceptsEmptyTensorsAndRejectsBadInput) {
  std::vector<float> x(12), y(12);
  std::vector<int64_t> indices(12);
  EXPECT_TRUE(top_k(f32_view(x, {0, 4}), true, f32_view(y, {0, 2}), index_view(indices, {0, 2})).ok());
  EXPECT_TRUE(sort(f32_view(x, {4, 0}), true, f32_view(y, {4, 0}), index_view(indices, {4, 0})).ok());
  const TensorView in = f32_view(x, {3, 4});
  EXPECT_EQ(
      top_k(in, true, f32_view(y, {3, 5}), index_view(indices, {3, 5})).message(),
      "values: expected the shape of input float32[3, 4] with at most as many elements in the last dimension, got "
      "float32[3, 5]");
  EXPECT_EQ(top_k(in, true, f32_view(y, {3, 2}), index_view(indices, {3, 3})).message(),
            "indices: expected the shape of values float32[3, 2], got int64[3, 3]");
  EXPECT_EQ(top_k(in, true, f32_view(y, {3, 2}), f32_view(y, {3, 2})).message(),
            "indices: expected int64, got float32[3, 2]");
  EXPECT_EQ(sort(in, true, f32_view(y, {3, 2}), index_view(indices, {3, 2})).message(),
            "values: expected the shape of input float32[3, 4], got float32[3, 2]");
  EXPECT_EQ(sort(f32_view(x, {}), true, f32_view(y, {}), index_view(indices, {})).message(),
            "input: expected at least one dimension, got float32[]");
  EXPECT_EQ(sort(in, true, contiguous_view(y.data(), DType::kFloat16, {3, 4}), index_view(indices, {3, 4})).message(),
            "values: expected the dtype of input, float32, got float16[3, 4]");
}

}  // namespace
}  // namespace qx::kernels
