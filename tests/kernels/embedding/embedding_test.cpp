#include "quincunx/kernels/embedding/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/embedding/embedding_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

TensorView index_view(std::vector<int64_t>& values, const std::vector<int64_t>& shape) {
  return contiguous_view(values.data(), DType::kInt64, shape);
}

TEST(Embedding, CopiesTheRowsOfEachIndex) {
  std::vector<float> table = normal_values(10 * 7, 1), y(6 * 7);
  std::vector<int64_t> indices = {3, 0, 9, 3, 3, 1};
  ASSERT_TRUE(embedding(f32_view(table, {10, 7}), index_view(indices, {2, 3}), f32_view(y, {2, 3, 7})).ok());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], table[static_cast<size_t>(indices[i / 7]) * 7 + i % 7]);
}

TEST(Embedding, FollowsStridesInHalfPrecisionWithInt32Indices) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<uint16_t> table = narrowed(normal_values(5 * 9, 2), dtype), y(4 * 9);
    table[3] = 0x7fc1;  // a NaN keeps its payload
    std::vector<int32_t> indices = {4, 9, 0, 9, 3, 9, 0, 9};
    // The table's rows are columns of memory; every second index; the output is written column by column.
    ASSERT_TRUE(embedding(strided_view(table.data(), dtype, {5, 9}, {1, 5}),
                          strided_view(indices.data(), DType::kInt32, {4}, {2}),
                          strided_view(y.data(), dtype, {4, 9}, {1, 4}))
                    .ok());
    for (size_t i = 0; i < 4; ++i) {
      for (size_t d = 0; d < 9; ++d) EXPECT_EQ(y[d * 4 + i], table[d * 5 + static_cast<size_t>(indices[2 * i])]);
    }
  }
}

TEST(EmbeddingBag, SumsAndAveragesInTheOrderOfTheIndices) {
  for_each_dispatch_target([] {
    for (const int64_t width : {1, 8, 19, 64}) {
      std::vector<float> table = normal_values(12 * width, 3), y(static_cast<size_t>(4 * width));
      std::vector<int64_t> indices = {1, 5, 5, 11, 0, 2, 3}, offsets = {0, 3, 3, 4};
      for (const BagMode mode : {BagMode::kSum, BagMode::kMean}) {
        ASSERT_TRUE(embedding_bag(f32_view(table, {12, width}), index_view(indices, {7}), index_view(offsets, {4}),
                                  mode, f32_view(y, {4, width}))
                        .ok());
        for (size_t bag = 0; bag < 4; ++bag) {
          const auto first = static_cast<size_t>(offsets[bag]);
          const size_t last = bag == 3 ? 7 : static_cast<size_t>(offsets[bag + 1]);
          std::vector<double> expected(static_cast<size_t>(width));
          embedding_bag_reference(std::vector<double>(table.begin(), table.end()),
                                  std::span(indices).subspan(first, last - first), mode, expected);
          for (size_t d = 0; d < expected.size(); ++d) {
            // Three additions and a division of numbers of the size of a few units.
            EXPECT_NEAR(y[bag * expected.size() + d], expected[d], 4 * 0x1p-24 * 8);
          }
        }
      }
    }
  });
}

TEST(EmbeddingBag, RoundsHalfPrecisionOnceAndHoldsMoreIndicesThanOneReduction) {
  for_each_dispatch_target([] {
    std::vector<uint16_t> table = narrowed({256, 1, 1, 0.5f}, DType::kBFloat16), y(2);
    std::vector<int64_t> offsets = {0}, few = {0, 1, 1, 1, 1}, many(5000, 1);
    const TensorView rows = contiguous_view(table.data(), DType::kBFloat16, {2, 2});
    const TensorView output = contiguous_view(y.data(), DType::kBFloat16, {1, 2});
    ASSERT_TRUE(embedding_bag(rows, index_view(few, {5}), index_view(offsets, {1}), BagMode::kSum, output).ok());
    EXPECT_EQ(widened(y, DType::kBFloat16), (std::vector<float>{260, 3}));
    ASSERT_TRUE(embedding_bag(rows, index_view(many, {5000}), index_view(offsets, {1}), BagMode::kSum, output).ok());
    EXPECT_EQ(widened(y, DType::kBFloat16), (std::vector<float>{4992, 2496}));  // the nearest to 5000 and 2500
    ASSERT_TRUE(embedding_bag(rows, index_view(many, {5000}), index_view(offsets, {1}), BagMode::kMean, output).ok());
    EXPECT_EQ(widened(y, DType::kBFloat16), (std::vector<float>{1, 0.5f}));
  });
}

TEST(EmbeddingBag, GivesTheSameBitsForAnyNumberOfThreads) {
  std::vector<float> table = normal_values(50 * 40, 4), one(300 * 40), many(one.size());
  std::vector<int64_t> indices, offsets;
  for (int64_t i = 0; i < 3000; ++i) indices.push_back(i * 7919 % 50);
  for (int64_t b = 0; b < 300; ++b) offsets.push_back(b * b / 30);
  const auto run = [&](int threads, std::vector<float>& y) {
    set_num_threads(threads);
    ASSERT_TRUE(embedding_bag(f32_view(table, {50, 40}), index_view(indices, {3000}), index_view(offsets, {300}),
                              BagMode::kMean, f32_view(y, {300, 40}))
                    .ok());
  };
  run(1, one);
  run(3, many);
  set_num_threads(0);
  EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0);
}

TEST(Embedding, AcceptsEmptyTensorsAndRejectsBadInput) {
  std::vector<float> table(12), y(12);
  std::vector<int64_t> indices = {0, 3}, negative = {-1}, none, offsets = {0, 2}, falling = {0, 2, 1}, late = {1};
  const TensorView rows = f32_view(table, {3, 4});
  EXPECT_TRUE(embedding(rows, index_view(none, {0}), f32_view(y, {0, 4})).ok());
  EXPECT_TRUE(embedding(f32_view(table, {3, 0}), index_view(negative, {0}), f32_view(y, {0, 0})).ok());
  EXPECT_TRUE(
      embedding_bag(rows, index_view(none, {0}), index_view(late, {0}), BagMode::kSum, f32_view(y, {0, 4})).ok());
  y.assign(12, 5);
  EXPECT_EQ(embedding(rows, index_view(indices, {2}), f32_view(y, {2, 4})).message(),
            "indices: expected 0 to 2, the rows of table, got 3 at element 1");
  EXPECT_EQ(y, std::vector<float>(12, 5)) << "wrote before it had checked";
  EXPECT_EQ(embedding(rows, index_view(negative, {1}), f32_view(y, {1, 4})).message(),
            "indices: expected 0 to 2, the rows of table, got -1 at element 0");
  indices = {0, 1};
  EXPECT_EQ(embedding(rows, index_view(indices, {2}), f32_view(y, {4, 2})).message(),
            "output: expected the shape of indices int64[2] and then 4, got float32[4, 2]");
  EXPECT_EQ(embedding(rows, f32_view(y, {2}), f32_view(y, {2, 4})).message(),
            "indices: expected int64 or int32, got float32[2]");
  const auto bag = [&](std::vector<int64_t>& starts) {
    const auto count = static_cast<int64_t>(starts.size());
    return embedding_bag(rows, index_view(indices, {2}), index_view(starts, {count}), BagMode::kSum,
                         f32_view(y, {count, 4}))
        .message();
  };
  std::vector<int64_t> shared = {0, 1, 0, 0};
  EXPECT_THAT(embedding_bag(rows, index_view(indices, {2}), index_view(shared, {2}), BagMode::kSum,
                            contiguous_view(shared.data(), DType::kFloat32, {2, 4}))
                  .message(),
              ::testing::HasSubstr("offsets"));
  EXPECT_EQ(shared, (std::vector<int64_t>{0, 1, 0, 0})) << "wrote before it had checked";
  EXPECT_EQ(bag(falling), "offsets[2]: expected 2 to 2, the number of indices, got 1");
  EXPECT_EQ(bag(late), "offsets[0]: expected 0, got 1");
  EXPECT_EQ(embedding_bag(rows, index_view(indices, {2}), index_view(offsets, {2}), static_cast<BagMode>(7),
                          f32_view(y, {2, 4}))
                .message(),
            "mode: expected a BagMode, got 7");
}

}  // namespace
}  // namespace qx::kernels
