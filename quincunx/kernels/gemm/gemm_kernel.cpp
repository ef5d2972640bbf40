#include "quincunx/kernels/gemm/gemm_kernel.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/gemm/gemm_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/gemm/epilogue-inl.h"
#include "quincunx/kernels/gemm/micro_kernel-inl.h"
#include "quincunx/kernels/gemm/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

int64_t TileRows(int64_t rows) { return TileRowsFor(rows); }

// One tile of rows times a group of panels, over one block of K.
struct Tile {
  int64_t row_begin, rows;
  int64_t column_begin, columns;  // columns < 16 * panels at the right edge
  int64_t panels;
};

// The block of K that is being summed.
struct InnerBlock {
  int64_t begin, depth;
  bool first, last;
};

// The rows of A in a range, one K block of them: as they lie, or copied where the elements of a row are apart.
struct RowsOfA {
  const float* data;
  int64_t row_stride;
};

// What tiles bring into the L2 cache for those after them: a panel each as far as they go, else rows of A.
struct Fetches {
  int64_t num_panels = 0;
  int64_t tiles_before = 0;  // that had one each
  bool rows = false;
};

// Computes one tile and, after the last block of K, its epilogue, while it is in the L1 cache.
void MultiplyTile(const MatrixProduct& product, const Tile& tile, const InnerBlock& inner, const RowsOfA& a,
                  const Fetches& fetches) {
  const int64_t panel_stride = product.inner * kPanelColumns;
  const float* b = product.packed_b + (tile.column_begin / kPanelColumns) * panel_stride + inner.begin * kPanelColumns;
  float* c = product.c + tile.row_begin * product.c_row_stride + tile.column_begin;
  const TileFunction multiply = TileFunctionFor(tile.rows, tile.panels);
  if (tile.columns == tile.panels * kPanelColumns) {
    multiply({inner.depth, a.data, b, panel_stride, c, product.c_row_stride, !inner.first, a.row_stride, 1, 1, 1,
              fetches.num_panels, fetches.tiles_before, fetches.rows});
  } else {
    HWY_ALIGN float edge[kTileRows * kMaxGroupPanels * kPanelColumns];
    const int64_t stride = tile.panels * kPanelColumns;
    multiply({inner.depth, a.data, b, panel_stride, edge, stride, false, a.row_stride, 1, 1, 1, fetches.num_panels,
              fetches.tiles_before, fetches.rows});
    for (int64_t r = 0; r < tile.rows; ++r) {
      float* row = c + r * product.c_row_stride;
      for (int64_t j = 0; j < tile.columns; ++j) row[j] = (inner.first ? 0.0f : row[j]) + edge[r * stride + j];
    }
  }
  if (inner.last && !product.epilogue.is_identity()) {
    ApplyEpilogue(product.epilogue, tile.row_begin, tile.rows, tile.column_begin, tile.columns, c,
                  product.c_row_stride);
  }
}

// The same for a gated product, whose K is one block: c gets half as many columns as the tile has sums.
void MultiplyGatedTile(const MatrixProduct& product, const Tile& tile, const RowsOfA& a, const Fetches& fetches) {
  HWY_ALIGN float sums[kTileRows * kMaxGroupPanels * kPanelColumns];
  const int64_t panel_stride = product.inner * kPanelColumns;
  const int64_t stride = tile.panels * kPanelColumns;
  const float* b = product.packed_b + (tile.column_begin / kPanelColumns) * panel_stride;
  const int64_t at_once = std::min(tile.panels, GroupPanels(tile.rows));
  for (int64_t p = 0; p < tile.panels; p += at_once) {
    TileFunctionFor(tile.rows, at_once)({product.inner, a.data, b + p * panel_stride, panel_stride,
                                         sums + p * kPanelColumns, stride, false, a.row_stride, 1, 1, 1,
                                         fetches.num_panels, fetches.tiles_before, fetches.rows});
  }
  const int64_t column = tile.column_begin / 2;
  ApplyGatedEpilogue(product.epilogue, tile.row_begin, tile.rows, column,
                     std::min(tile.panels / 2 * kPanelColumns, product.columns - column), sums, stride,
                     product.c + tile.row_begin * product.c_row_stride + column, product.c_row_stride);
}

// Panels that are multiplied together in a product whose tiles have up to `rows` rows: at least a gate and its partner.
int64_t PanelsAtOnce(const MatrixProduct& product, int64_t rows) {
  return std::max<int64_t>(GroupPanels(rows), product.gated ? 2 : 1);
}

// Tiles [tile, result) have the same rows.
int64_t EndOfEqualTiles(const MatrixProduct& product, const BlockRange& range, int64_t tile) {
  const int64_t longer = product.rows % range.num_tiles;
  return tile < longer ? std::min(longer, range.tile_end) : range.tile_end;
}

// Groups of `panels` panels from `panel` on for all tiles of `range`, which need nothing but their sums.
void MultiplyPlainGroups(const MatrixProduct& product, const BlockRange& range, const InnerBlock& inner,
                         const RowsOfA& a, int64_t panel, int64_t panels, int64_t num_groups) {
  const int64_t first = first_row(range.tile_begin, range.num_tiles, product.rows);
  const int64_t panel_stride = product.inner * kPanelColumns;
  for (int64_t t = range.tile_begin; t < range.tile_end;) {
    const int64_t end = EndOfEqualTiles(product, range, t);
    const int64_t row = first_row(t, range.num_tiles, product.rows);
    const int64_t rows = first_row(t + 1, range.num_tiles, product.rows) - row;
    TileFunctionFor(rows, panels)({inner.depth, a.data + (row - first) * a.row_stride,
                                   product.packed_b + panel * panel_stride + inner.begin * kPanelColumns, panel_stride,
                                   product.c + row * product.c_row_stride + panel * kPanelColumns, product.c_row_stride,
                                   !inner.first, a.row_stride, 1, end - t, num_groups,
                                   range.panel_end - panel - num_groups * panels, t - range.tile_begin,
                                   panel == range.panel_begin && a.row_stride == inner.depth});
    t = end;
  }
}

// One group of panels for all tiles of `range`, one after another; `a` starts at the first row of the range.
void MultiplyGroup(const MatrixProduct& product, const BlockRange& range, const InnerBlock& inner, const RowsOfA& a,
                   int64_t panel, int64_t panels) {
  const int64_t first = first_row(range.tile_begin, range.num_tiles, product.rows);
  const int64_t column = panel * kPanelColumns;
  const int64_t columns = std::min(panels * kPanelColumns, product.columns - column);
  for (int64_t t = range.tile_begin; t < range.tile_end; ++t) {
    const int64_t row = first_row(t, range.num_tiles, product.rows);
    const int64_t rows = first_row(t + 1, range.num_tiles, product.rows) - row;
    if (product.upper_only && column + columns <= row) break;  // this tile and those below it
    const Fetches fetches{range.panel_end - panel - panels, t - range.tile_begin,
                          panel == range.panel_begin && a.row_stride == inner.depth};
    Tile tile{row, rows, column, columns, panels};
    // Panels that lie below the diagonal are left out, half of the group at a time.
    while (product.upper_only && tile.panels > 1 && tile.column_begin + tile.panels / 2 * kPanelColumns <= row) {
      tile.panels /= 2;
      tile.column_begin += tile.panels * kPanelColumns;
      tile.columns -= tile.panels * kPanelColumns;
    }
    const RowsOfA rows_of_a{a.data + (row - first) * a.row_stride, a.row_stride};
    if (product.gated) {
      MultiplyGatedTile(product, tile, rows_of_a, fetches);
    } else {
      MultiplyTile(product, tile, inner, rows_of_a, fetches);
    }
  }
}

// All panels of `range` for one block of K; `a` starts at the first row of the range.
void MultiplyPanels(const MatrixProduct& product, const BlockRange& range, const InnerBlock& inner, const RowsOfA& a) {
  const int64_t widest = PanelsAtOnce(product, (product.rows + range.num_tiles - 1) / range.num_tiles);
  const bool is_plain = !product.gated && !product.upper_only && (!inner.last || product.epilogue.is_identity());
  const int64_t whole_panels = product.columns / kPanelColumns;
  for (int64_t panel = range.panel_begin; panel < range.panel_end;) {
    int64_t panels = widest;
    while (panels > range.panel_end - panel) panels /= 2;
    const int64_t num_groups =
        EndOfEqualTiles(product, range, range.tile_begin) == range.tile_end ? (range.panel_end - panel) / panels : 1;
    const int64_t plain_groups = is_plain ? std::min(num_groups, (whole_panels - panel) / panels) : 0;
    if (plain_groups > 0) {
      MultiplyPlainGroups(product, range, inner, a, panel, panels, plain_groups);
    } else {
      MultiplyGroup(product, range, inner, a, panel, panels);
    }
    panel += std::max<int64_t>(1, plain_groups) * panels;
  }
}

void MultiplyBlock(const MatrixProduct& product, const BlockRange& range, float* workspace) {
  // The sums of a gated product have no place in c: they stay in the tile.
  const int64_t blocks =
      product.gated ? 1 : std::max<int64_t>(1, (product.inner + kMaxInnerBlock - 1) / kMaxInnerBlock);
  const int64_t row_begin = first_row(range.tile_begin, range.num_tiles, product.rows);
  const int64_t row_end = first_row(range.tile_end, range.num_tiles, product.rows);
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = i * product.inner / blocks;
    const int64_t depth = (i + 1) * product.inner / blocks - begin;
    const float* a = product.a.data + row_begin * product.a.row_stride + begin * product.a.column_stride;
    RowsOfA rows{a, product.a.row_stride};
    if (product.a.column_stride != 1) {
      CopyToRows(a, product.a.row_stride, product.a.column_stride, row_end - row_begin, depth, workspace);
      rows = {workspace, depth};
    }
    MultiplyPanels(product, range, {begin, depth, i == 0, i + 1 == blocks}, rows);
  }
}

// The lower half of a square from its upper one. Sixteen rows at a time: whole cache lines are written.
void MirrorUpperHalf(float* square, int64_t rows, int64_t stride) {
  const auto mirror = [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
    for (int64_t r = row_begin; r < row_end; ++r) {
      for (int64_t c = column_begin; c < std::min(column_end, r); ++c) square[r * stride + c] = square[c * stride + r];
    }
  };
  for (int64_t i = 0; i < rows; i += 16) {
    const int64_t row_end = std::min(i + 16, rows);
    for (int64_t c = 0; c < i; c += 4) {
      int64_t r = i;
      for (; r + 4 <= row_end; r += 4) Transpose4x4(square + c * stride + r, stride, square + r * stride + c, stride);
      mirror(r, row_end, c, c + 4);
    }
    mirror(i, row_end, i, row_end);
  }
}

void PackPanelRange(const StridedMatrix& b, int64_t inner, int64_t columns, int64_t panel_begin, int64_t panel_end,
                    float* packed) {
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t column = panel * kPanelColumns;
    // The columns of B are the rows of a tile that is summed over K.
    PackTile(b.data + column * b.column_stride, b.column_stride, b.row_stride,
             std::min(kPanelColumns, columns - column), inner, kPanelColumns, packed + panel * inner * kPanelColumns);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(TileRows);
HWY_EXPORT(MultiplyBlock);
HWY_EXPORT(MirrorUpperHalf);
HWY_EXPORT(PackPanelRange);

int64_t tile_rows(int64_t rows) { return HWY_DYNAMIC_DISPATCH(TileRows)(rows); }

int64_t block_workspace_size(const MatrixProduct& product, const BlockRange& range) {
  if (product.a.column_stride == 1) return 0;
  const int64_t rows = first_row(range.tile_end, range.num_tiles, product.rows) -
                       first_row(range.tile_begin, range.num_tiles, product.rows);
  return rows * (product.gated ? product.inner : std::min(product.inner, kMaxInnerBlock));
}

void multiply_block(const MatrixProduct& product, const BlockRange& range, float* workspace) {
  HWY_DYNAMIC_DISPATCH(MultiplyBlock)(product, range, workspace);
}

void mirror_upper_half(float* square, int64_t rows, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(MirrorUpperHalf)(square, rows, stride);
}

void pack_panel_range(const StridedMatrix& b, int64_t inner, int64_t columns, int64_t panel_begin, int64_t panel_end,
                      float* packed) {
  HWY_DYNAMIC_DISPATCH(PackPanelRange)(b, inner, columns, panel_begin, panel_end, packed);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
