// The checked product behind low_precision_gemm, on raw pointers, and how it is cut into blocks for threads and caches.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/gemm/matrix_product.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/kernels/low_precision_gemm/weight_layout.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {

// f32, bf16 or f16 with any strides.
struct FloatMatrix {
  DType dtype = DType::kFloat32;
  void* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;

  char* at(int64_t row, int64_t column) const {
    return static_cast<char*>(data) + (row * row_stride + column * column_stride) * dtype_size_bytes(dtype);
  }
};

struct LowPrecisionProduct {
  FloatMatrix a;
  int64_t rows = 0;
  PackedWeight weight;
  FloatMatrix output;
  Epilogue epilogue;
  InputQuantization input = InputQuantization::kNone;
  float input_scale = 1.0f;
  int32_t input_zero_point = 0;

  bool writes_directly() const { return output.dtype == DType::kFloat32 && output.column_stride == 1; }
};

// Tile t of num_tiles covers rows [first_row_of(t), first_row_of(t + 1)).
inline int64_t first_row_of(int64_t tile, int64_t num_tiles, int64_t rows) { return tile * rows / num_tiles; }

// A part of the output and where its f32 sums go: rows in tiles that are as equal as possible, columns in panels.
struct ProductBlock {
  int64_t rows;  // of the whole product
  int64_t num_tiles, tile_begin, tile_end;
  int64_t panel_begin, panel_end;
  float* c;  // its element (first_row(), first_column())
  int64_t c_row_stride;

  int64_t row_of(int64_t tile) const { return first_row_of(tile, num_tiles, rows); }
  int64_t first_row() const { return row_of(tile_begin); }
  int64_t num_rows() const { return row_of(tile_end) - first_row(); }
  int64_t first_column() const { return panel_begin * kWeightPanelColumns; }
  float* c_at(int64_t row, int64_t column) const {
    return c + (row - first_row()) * c_row_stride + column - first_column();
  }
};

// Threads that are worth their start for `product`.
int64_t threads_of(const LowPrecisionProduct& product);

struct BlockGrid {
  BlockGrid(const LowPrecisionProduct& product, int64_t max_tile_rows, int64_t threads);
  int64_t num_blocks() const { return row_blocks * column_blocks; }
  ProductBlock block(const LowPrecisionProduct& product, int64_t index) const;

  int64_t num_tiles, num_panels, row_blocks, column_blocks;
};

// The sums of a block, which stand in c, to an output that was not written directly.
void store_block(const LowPrecisionProduct& product, const ProductBlock& block);

// body(block) for blocks that cover the output, on several threads. Tiles have at most max_tile_rows rows; a block,
// some hundred: what is packed of its rows stays in the L2 cache. K is never cut: the order of summation stays.
template <typename Body>
void for_each_block(const LowPrecisionProduct& product, int64_t max_tile_rows, const Body& body) {
  const int64_t threads = threads_of(product);
  const BlockGrid grid(product, max_tile_rows, threads);
  std::atomic<int64_t> next = 0;
  const auto run = [&](int64_t, int64_t) {
    for (int64_t i = next++; i < grid.num_blocks(); i = next++) {
      ProductBlock block = grid.block(product, i);
      const int64_t columns = (block.panel_end - block.panel_begin) * kWeightPanelColumns;
      const Workspace sums(product.writes_directly() ? 0 : block.num_rows() * columns);
      if (!product.writes_directly()) {
        block.c = sums.data();
        block.c_row_stride = columns;
      }
      body(block);
      if (!product.writes_directly()) store_block(product, block);
    }
  };
  if (threads == 1) return run(0, 1);
  parallel_for(0, std::min(threads, grid.num_blocks()), 1, run);
}

}  // namespace qx::kernels
