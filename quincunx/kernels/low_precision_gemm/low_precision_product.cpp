#include "quincunx/kernels/low_precision_gemm/low_precision_product.h"

namespace qx::kernels {
namespace {

// Widening the weights for a block costs as much as three or four of its rows; packed rows of this number and 768
// columns (576 KiB) still leave the L2 cache room for the weights.
constexpr int64_t kBlockRows = 192;
// Below this many multiply-adds a second thread costs more than it saves.
constexpr int64_t kMinParallelWork = 1 << 17;
// More than one block a thread, so that a thread that was interrupted does not hold up the others.
constexpr int64_t kBlocksPerThread = 4;
// Each block packs its rows again: narrower ones would spend too much on that.
constexpr int64_t kMinPanelsPerBlock = 8;

}  // namespace

int64_t threads_of(const LowPrecisionProduct& product) {
  const double work = static_cast<double>(product.rows) * static_cast<double>(product.weight.columns) *
                      static_cast<double>(product.weight.inner);
  return in_parallel_region() || work < kMinParallelWork ? 1 : num_threads();
}

BlockGrid::BlockGrid(const LowPrecisionProduct& product, int64_t max_tile_rows, int64_t threads)
    : num_tiles(ceil_div(product.rows, max_tile_rows)),
      num_panels(num_weight_panels(product.weight.columns)),
      row_blocks(ceil_div(num_tiles, std::max<int64_t>(1, kBlockRows / max_tile_rows))),
      column_blocks(1) {
  if (threads == 1) return;
  const int64_t wanted = ceil_div(kBlocksPerThread * threads, row_blocks);
  const int64_t most = std::max(num_panels / kMinPanelsPerBlock, std::min(threads, num_panels));
  column_blocks = std::clamp<int64_t>(wanted, 1, most);
}

ProductBlock BlockGrid::block(const LowPrecisionProduct& product, int64_t index) const {
  const int64_t row = index / column_blocks;
  const int64_t column = index % column_blocks;
  ProductBlock block{product.rows,
                     num_tiles,
                     row * num_tiles / row_blocks,
                     (row + 1) * num_tiles / row_blocks,
                     column * num_panels / column_blocks,
                     (column + 1) * num_panels / column_blocks,
                     nullptr,
                     product.output.row_stride};
  if (product.writes_directly()) {
    block.c = reinterpret_cast<float*>(product.output.at(block.first_row(), block.first_column()));
  }
  return block;
}

void store_block(const LowPrecisionProduct& product, const ProductBlock& block) {
  const int64_t columns =
      std::min(block.panel_end * kWeightPanelColumns, product.weight.columns) - block.first_column();
  for (int64_t r = 0; r < block.num_rows(); ++r) {
    store_row_from_f32(block.c + r * block.c_row_stride, columns, product.output.dtype,
                       product.output.at(block.first_row() + r, block.first_column()), product.output.column_stride);
  }
}

}  // namespace qx::kernels
