#include "quincunx/kernels/block_sparse_attention/tile_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace qx::kernels {
namespace {

TEST(TileOrder, TakesNeighboursInThreeDimensions) {
  const TileOrder order = tile_order({.latent = {2, 2, 4}, .tile = {2, 2, 2}}).value();
  EXPECT_EQ(order.order, (std::vector<int64_t>{0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15}));
  EXPECT_EQ(order.starts, (std::vector<int64_t>{0, 8, 16}));
  EXPECT_EQ(order.tiles, (std::vector<std::array<int64_t, 3>>{{0, 0, 0}, {0, 0, 1}}));
}

TEST(TileOrder, MakesRaggedTilesAtTheFarEdges) {
  const TileOrder order = tile_order({.latent = {1, 3, 3}, .tile = {4, 2, 2}}).value();
  EXPECT_EQ(order.order, (std::vector<int64_t>{0, 1, 3, 4, 2, 5, 6, 7, 8}));
  EXPECT_EQ(order.starts, (std::vector<int64_t>{0, 4, 6, 8, 9}));
}

TEST(TileOrder, PutsTextLastInBlocksOfItsOwn) {
  TileOptions options{.latent = {1, 1, 3}, .tile = {1, 1, 2}, .text_length = 3};
  TileOrder order = tile_order(options).value();
  EXPECT_EQ(order.order, (std::vector<int64_t>{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(order.starts, (std::vector<int64_t>{0, 2, 3, 5, 6}));
  EXPECT_EQ(order.tiles.back(), (std::array<int64_t, 3>{-1, -1, -1}));
  options.is_text_first = false;
  order = tile_order(options).value();
  EXPECT_EQ(order.order, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(order.starts, (std::vector<int64_t>{0, 2, 3, 5, 6}));
}

TEST(TileOrder, SetsTheFirstFrameApart) {
  const TileOrder order = tile_order({.latent = {4, 1, 2}, .tile = {2, 1, 2}, .has_first_frame_apart = true}).value();
  EXPECT_EQ(order.starts, (std::vector<int64_t>{0, 2, 6, 8}));
  EXPECT_EQ(order.tiles[1][0], 1);
}

TEST(TileOrder, IsAPermutationForAnySize) {
  for (int64_t t = 1; t <= 4; ++t) {
    for (int64_t h = 1; h <= 5; ++h) {
      for (int64_t w = 1; w <= 5; ++w) {
        for (const int64_t text : {0, 1, 9}) {
          TileOrder order = tile_order({.latent = {t, h, w}, .tile = {3, 2, 4}, .text_length = text}).value();
          std::vector<int64_t> all(static_cast<size_t>(t * h * w + text));
          std::iota(all.begin(), all.end(), 0);
          std::sort(order.order.begin(), order.order.end());
          ASSERT_EQ(order.order, all);
          ASSERT_EQ(order.starts.size(), order.tiles.size() + 1);
          ASSERT_EQ(order.starts.back(), t * h * w + text);
          ASSERT_TRUE(std::is_sorted(order.starts.begin(), order.starts.end(), std::less_equal<>()));
        }
      }
    }
  }
}

TEST(TileOrder, NamesBadSizes) {
  EXPECT_EQ(tile_order({.latent = {1, 0, 2}, .tile = {1, 1, 1}}).status().message(),
            "latent_shape: expected three sizes of 1 to 2^20, got 1 x 0 x 2");
  EXPECT_EQ(tile_order({.latent = {1, 1, 2}, .tile = {1, -1, 1}}).status().message(),
            "tile: expected three sizes of 1 to 2^20, got 1 x -1 x 1");
  EXPECT_EQ(tile_order({.latent = {1 << 20, 1 << 20, 1 << 20}, .tile = {1, 1, 1}}).status().message(),
            "latent_shape: expected at most 2^31 tokens with the text, got 1048576 x 1048576 x 1048576");
  EXPECT_EQ(tile_order({.latent = {1, 1, 2}, .tile = {1, 1, 1}, .text_length = -1}).status().message(),
            "text_len: expected 0 to 2^31, got -1");
}

}  // namespace
}  // namespace qx::kernels
