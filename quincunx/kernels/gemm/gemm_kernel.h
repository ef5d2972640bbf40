// One thread's share of a product: the functions that exist once for each instruction set.
#pragma once

#include <algorithm>
#include <cstdint>

#include "quincunx/kernels/gemm/matrix_product.h"

namespace qx::kernels {

// A product of `rows` rows is computed in tiles of at most tile_rows(rows) rows, as equal as they can be: no thin tile
// is left at the end. The number depends on the instruction set that runs.
int64_t tile_rows(int64_t rows);

// Tile t of num_tiles covers rows [first_row(t), first_row(t + 1)). Those of one row more come first.
inline int64_t first_row(int64_t tile, int64_t num_tiles, int64_t rows) {
  return tile * (rows / num_tiles) + std::min(tile, rows % num_tiles);
}

struct BlockRange {
  int64_t num_tiles;  // of the whole product
  int64_t tile_begin, tile_end;
  int64_t panel_begin, panel_end;
};

// Floats of scratch memory that multiply_block needs.
int64_t block_workspace_size(const MatrixProduct& product, const BlockRange& range);

// Computes the tiles and panels of `range` with their epilogue.
void multiply_block(const MatrixProduct& product, const BlockRange& range, float* workspace);

// Packs panels [panel_begin, panel_end).
void pack_panel_range(const StridedMatrix& b, int64_t inner, int64_t columns, int64_t panel_begin, int64_t panel_end,
                      float* packed);

}  // namespace qx::kernels
