// The order in which the tokens of a video become blocks: three-dimensional tiles of neighbours.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::kernels {

struct TileOptions {
  std::array<int64_t, 3> latent = {};  // frames, height, width of the token grid
  std::array<int64_t, 3> tile = {};    // the same of a tile
  int64_t text_length = 0;             // tokens beside the grid
  bool is_text_first = true;           // in memory they stand before the grid's tokens, else after them
  bool has_first_frame_apart = false;  // the first frame makes tiles of its own
};

struct TileOrder {
  std::vector<int64_t> order;  // the token at each position
  // Block i holds the positions [starts[i], starts[i + 1]). Blocks are the tiles, ragged at the far edges of the grid,
  // then the text in blocks of at most a tile's volume.
  std::vector<int64_t> starts;
  std::vector<std::array<int64_t, 3>> tiles;  // coordinates of each block in the grid of tiles; text: {-1, -1, -1}
};

// Tokens in memory are frame by frame, row by row. Sizes are 1 to 2^20, with at most 2^31 tokens. Thread-safe.
Result<TileOrder> tile_order(const TileOptions& options);

}  // namespace qx::kernels
