#include "quincunx/kernels/block_sparse_attention/block_selection.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/random_values.h"
#include "quincunx/kernels/block_sparse_attention/tile_order.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One head of `tiles` blocks of two tokens with head size 1: a query of 1 scores each block by the mean of its keys.
class Selection : public testing::Test {
 protected:
  void set_key_means(const std::vector<float>& means) {
    const auto blocks = static_cast<int64_t>(means.size());
    grid_ = tile_order({.latent = {1, 1, 2 * blocks}, .tile = {1, 1, 2}}).value();
    query_.assign(means.size() * 2, 1.0f);
    key_.clear();
    for (const float mean : means) key_.insert(key_.end(), {mean - 0.25f, mean + 0.25f});
    options_.order = grid_.order;
    options_.starts = grid_.starts;
    options_.tiles = grid_.tiles;
  }

  Result<double> run() {
    const auto blocks = static_cast<int64_t>(grid_.tiles.size());
    const auto length = static_cast<int64_t>(query_.size());
    idx_.assign(static_cast<size_t>(blocks * blocks), 99);
    num_.assign(static_cast<size_t>(blocks), 99);
    return select_blocks(f32_view(query_, {1, 1, length, 1}), f32_view(key_, {1, 1, length, 1}), options_,
                         contiguous_view(idx_.data(), DType::kInt64, {1, 1, blocks, blocks}),
                         contiguous_view(num_.data(), DType::kInt64, {1, 1, blocks}));
  }

  std::vector<int64_t> list(int64_t row) const {
    const auto first = idx_.begin() + row * static_cast<int64_t>(num_.size());
    return {first, first + num_[static_cast<size_t>(row)]};
  }

  TileOrder grid_;
  std::vector<float> query_, key_;
  std::vector<int64_t> idx_, num_;
  SelectionOptions options_;
};

using Blocks = std::vector<int64_t>;

TEST_F(Selection, KeepsTheHighestAndBreaksTiesByIndex) {
  set_key_means({1, 3, 2, 2});
  options_.sparsity = 0.5;
  EXPECT_EQ(run().value(), 0.5);
  EXPECT_EQ(list(0), (Blocks{1, 2}));
  EXPECT_EQ(idx_[2], -1) << "lists are filled up";
  set_key_means({1, 1, 1, 1});
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(3), (Blocks{0, 1}));
}

TEST_F(Selection, CountsNaNAsTheLowest) {
  set_key_means({kNaN, 1, -5, kNaN});
  options_.sparsity = 0.5;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(0), (Blocks{1, 2}));
  options_.sparsity = 0.25;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(0), (Blocks{0, 1, 2}));
}

TEST_F(Selection, AcceptsBothEndsOfSparsity) {
  set_key_means({1, 3, 2});
  EXPECT_EQ(run().value(), 1.0);
  EXPECT_EQ(list(1), (Blocks{0, 1, 2}));
  options_.sparsity = 1;
  EXPECT_EQ(run().value(), 0.0);
  EXPECT_EQ(list(1), Blocks{});
}

TEST_F(Selection, CountsProtectedBlocksAmongTheKept) {
  set_key_means({0, 1, 2, 3});
  options_.sparsity = 0.5;
  options_.num_sink_blocks = 1;
  EXPECT_EQ(run().value(), 0.5);
  EXPECT_EQ(list(0), (Blocks{0, 3}));
  options_.num_recent_blocks = 2;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(2), (Blocks{0, 1, 2}));
}

TEST_F(Selection, KeepsTheFewestBlocksThatReachTheThreshold) {
  // Weights 1, 2, 4 of 7.
  set_key_means({0, std::log(2.0f), std::log(4.0f)});
  options_.rule = SelectionRule::kCdf;
  options_.cdf_threshold = 0.57;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(0), (Blocks{2}));
  options_.cdf_threshold = 0.58;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(0), (Blocks{1, 2}));
  options_.cdf_threshold = 1;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(0), (Blocks{0, 1, 2}));
  options_.cdf_threshold = 0;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(0), Blocks{});
}

TEST_F(Selection, KeepsTheNeighboursOfAWindow) {
  set_key_means({kNaN, 0, 0, 0});
  options_.rule = SelectionRule::kWindow;
  options_.window = {0, 0, 1};
  EXPECT_EQ(run().value(), 10.0 / 16);
  EXPECT_EQ(list(0), (Blocks{0, 1}));
  EXPECT_EQ(list(2), (Blocks{1, 2, 3}));
}

TEST_F(Selection, JoinsTextAndTheFirstFrameWithEverything) {
  grid_ = tile_order({.latent = {3, 1, 2}, .tile = {2, 1, 2}, .text_length = 2, .has_first_frame_apart = true}).value();
  query_.assign(8, 1.0f);
  key_.assign(8, 1.0f);
  options_ = {.rule = SelectionRule::kWindow, .order = grid_.order, .starts = grid_.starts, .tiles = grid_.tiles};
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(0), (Blocks{0}));
  EXPECT_EQ(list(2), (Blocks{2})) << "text sees itself through the window rule";
  options_.keeps_text = true;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(0), (Blocks{0, 2}));
  EXPECT_EQ(list(2), (Blocks{0, 1, 2}));
  options_.keeps_text = false;
  options_.keeps_first_frame = true;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(list(0), (Blocks{0, 1, 2}));
  EXPECT_EQ(list(1), (Blocks{0, 1}));
}

TEST_F(Selection, GivesTheSameListsForAnyNumberOfThreads) {
  grid_ = tile_order({.latent = {3, 6, 7}, .tile = {1, 2, 4}}).value();
  query_ = normal_values(4 * 126 * 8, 1);
  key_ = normal_values(2 * 126 * 8, 2);
  const auto blocks = static_cast<int64_t>(grid_.tiles.size());
  const auto lists = [&](int threads) {
    set_num_threads(threads);
    std::vector<int64_t> idx(static_cast<size_t>(4 * blocks * blocks)), num(static_cast<size_t>(4 * blocks));
    options_ = {.sparsity = 0.6, .order = grid_.order, .starts = grid_.starts, .tiles = grid_.tiles};
    EXPECT_TRUE(select_blocks(f32_view(query_, {1, 4, 126, 8}), f32_view(key_, {1, 2, 126, 8}), options_,
                              contiguous_view(idx.data(), DType::kInt64, {1, 4, blocks, blocks}),
                              contiguous_view(num.data(), DType::kInt64, {1, 4, blocks}))
                    .ok());
    set_num_threads(0);
    return idx;
  };
  EXPECT_EQ(lists(1), lists(3));
}

TEST_F(Selection, NamesBadOptions) {
  set_key_means({1, 2});
  options_.sparsity = 1.5;
  EXPECT_EQ(run().status().message(), "sparsity: expected a number from 0 to 1, got 1.500000");
  options_.sparsity = std::nan("");
  EXPECT_EQ(run().status().message(), "sparsity: expected a number from 0 to 1, got nan");
  options_.sparsity = 0;
  options_.cdf_threshold = -1;
  EXPECT_EQ(run().status().message(), "cdf_threshold: expected a number from 0 to 1, got -1.000000");
  options_.cdf_threshold = 1;
  options_.window = {0, -1, 0};
  EXPECT_EQ(run().status().message(), "window: expected 0 or more, got -1");
  options_.window = {};
  options_.num_sink_blocks = -2;
  EXPECT_EQ(run().status().message(), "keep_sink: expected 0 or more, got -2");
  options_.num_sink_blocks = 0;
  key_.push_back(1);
  query_.push_back(1);
  EXPECT_EQ(run().status().message(),
            "starts: expected rising numbers from 0 to the length 5, got 3 numbers from 0 to 4");
}

TEST(NumKeptBlocks, IsNotRaisedByRounding) {
  EXPECT_EQ(num_kept_blocks(10, 0.7), 3);
  EXPECT_EQ(num_kept_blocks(50, 0.98), 1);
  EXPECT_EQ(num_kept_blocks(10, 0.75), 3);
  EXPECT_EQ(num_kept_blocks(3, 0.999), 1);
  EXPECT_EQ(num_kept_blocks(3, 1), 0);
  EXPECT_EQ(num_kept_blocks(3, 0), 3);
}

TEST(AddHighest, AddsExactlyTheCountOrAll) {
  const std::vector<float> scores = {3, 1, 2, 2, -kInfinity, 0};
  std::vector<uint8_t> mask(6);
  add_highest(scores, 3, mask);
  EXPECT_EQ(mask, (std::vector<uint8_t>{1, 0, 1, 1, 0, 0}));
  add_highest(scores, 1, mask);
  EXPECT_EQ(mask, (std::vector<uint8_t>{1, 1, 1, 1, 0, 0}));
  add_highest(scores, 16, mask);
  EXPECT_EQ(mask, std::vector<uint8_t>(6, 1));
}

}  // namespace
}  // namespace qx::kernels
