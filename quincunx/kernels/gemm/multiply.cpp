#include <algorithm>
#include <atomic>

#include "quincunx/kernels/gemm/gemm_kernel.h"
#include "quincunx/kernels/gemm/matrix_product.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// A block of A of this many rows and kMaxInnerBlock columns (384 KiB) stays in the L2 cache beside the panels that
// pass.
constexpr int64_t kBlockRows = 128;
// B is read once for each block of rows: twice as many of them where B is large. Both on a Zen 4 core: 5 % at
// 197 x 768 x 768 and 4 % at 2048^3.
constexpr int64_t kLargeBlockRows = 256;
constexpr int64_t kLargeMatrixBytes = int64_t{8} << 20;
// Below this many multiply-adds a second thread costs more than it saves.
constexpr int64_t kMinParallelWork = 1 << 17;
// Items of work a thread: more than one, so that a thread that was interrupted does not hold up the others.
constexpr int64_t kItemsPerThread = 4;
// Columns are cut at multiples of as many panels as a tile takes.
constexpr int64_t kPanelsPerGroup = 4;

struct Grid {
  int64_t num_tiles, num_panels;
  int64_t row_blocks, column_blocks;
  int64_t panels_per_group;

  BlockRange block(int64_t item) const {
    const int64_t row = item / column_blocks;
    const int64_t column = item % column_blocks;
    return {num_tiles, row * num_tiles / row_blocks, (row + 1) * num_tiles / row_blocks, first_panel(column),
            first_panel(column + 1)};
  }
  int64_t num_groups() const { return (num_panels + panels_per_group - 1) / panels_per_group; }
  int64_t first_panel(int64_t column) const {
    return std::min(num_panels, column * num_groups() / column_blocks * panels_per_group);
  }
};

Grid grid_for(const MatrixProduct& product, int64_t threads) {
  Grid grid{};
  const int64_t max_rows = tile_rows(product.rows);
  grid.num_tiles = (product.rows + max_rows - 1) / max_rows;
  const int64_t matrices = product.gated ? 2 : 1;
  grid.num_panels = matrices * num_panels(product.columns);
  const int64_t bytes = grid.num_panels * kPanelColumns * product.inner * static_cast<int64_t>(sizeof(float));
  const int64_t block_rows = bytes > kLargeMatrixBytes ? kLargeBlockRows : kBlockRows;
  const int64_t tiles_per_block = std::max<int64_t>(1, block_rows / max_rows);
  // To the nearest: 257 rows are one block and not two halves, for which B would be read twice.
  grid.row_blocks = std::max<int64_t>(1, (grid.num_tiles + tiles_per_block / 2) / tiles_per_block);
  grid.column_blocks = 1;
  grid.panels_per_group = grid.num_panels >= kPanelsPerGroup * threads ? kPanelsPerGroup : matrices;
  if (threads > 1) {
    const int64_t wanted = (kItemsPerThread * threads + grid.row_blocks - 1) / grid.row_blocks;
    grid.column_blocks = std::min(wanted, grid.num_groups());
  }
  return grid;
}

int64_t threads_for(int64_t work) { return in_parallel_region() || work < kMinParallelWork ? 1 : num_threads(); }

}  // namespace

void multiply(const MatrixProduct& product) {
  if (product.rows == 0 || product.columns == 0) return;
  if (product.inner == 0 && product.a.row_stride != 0) {  // no row may be counted from a pointer that can be null
    MatrixProduct without_elements = product;
    without_elements.a = {nullptr, 0, 1};
    return multiply(without_elements);
  }
  const double work = static_cast<double>(product.rows) * static_cast<double>(product.columns) *
                      static_cast<double>(std::max<int64_t>(product.inner, 1));
  const int64_t threads = threads_for(work < 1e18 ? static_cast<int64_t>(work) : kMinParallelWork);
  const Grid grid = grid_for(product, threads);
  const int64_t items = grid.row_blocks * grid.column_blocks;

  std::atomic<int64_t> next = 0;
  const auto run = [&](int64_t, int64_t) {
    for (int64_t item = next++; item < items; item = next++) {
      const BlockRange range = grid.block(item);
      const Workspace workspace(block_workspace_size(product, range));
      multiply_block(product, range, workspace.data());
    }
  };
  if (threads == 1) return run(0, 1);
  parallel_for(0, std::min(threads, items), 1, run);
}

void pack_panels(const StridedMatrix& b, int64_t inner, int64_t columns, float* packed) {
  if (inner == 0) return;
  const int64_t panels = num_panels(columns);
  if (threads_for(inner * columns) == 1) return pack_panel_range(b, inner, columns, 0, panels, packed);
  parallel_for(0, panels, 4,
               [&](int64_t begin, int64_t end) { pack_panel_range(b, inner, columns, begin, end, packed); });
}

}  // namespace qx::kernels
