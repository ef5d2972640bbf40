// The innermost product: a tile of rows of A times a group of panels of B, all sums in registers.
#if defined(QUINCUNX_KERNELS_GEMM_MICRO_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_GEMM_MICRO_KERNEL_INL_H_
#undef QUINCUNX_KERNELS_GEMM_MICRO_KERNEL_INL_H_
#else
#define QUINCUNX_KERNELS_GEMM_MICRO_KERNEL_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>

#include "quincunx/base/unroll.h"
#include "quincunx/kernels/gemm/matrix_product.h"
#include "quincunx/kernels/gemm/tile_choice-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a tile at most, for a product of `rows` rows, and panels that are multiplied together. The sums take most of
// the registers, the rest holds a row of B and one element of A.
//   32 registers of 16 lanes: 6 x 64, 24 sums, 4 of B, 1 of A: as few loads of A as of B, and six rows do not compete
//                             for one set of the L1 cache however far apart they are
//   the same, 7 to 16 rows:   8 x 32: B comes from afar, and two tiles read it faster than the cache gives it
//   16 registers of 8 lanes:  6 x 16, 12 sums, 2 of B, 1 of A
//   narrower vectors:         2 x 16,  8 sums of 4 lanes
// On AVX2 fewer rows take more panels: a fused multiply-add takes four cycles and two start in each, so that fewer than
// eight independent sums would wait for each other.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int64_t kTileRows = 8;
constexpr int64_t TileRowsFor(int64_t rows) { return rows <= 24 ? 8 : 6; }
constexpr int64_t GroupPanels(int64_t rows) { return rows <= 6 ? 4 : 2; }
#elif HWY_TARGET == HWY_AVX2
inline constexpr int64_t kTileRows = 6;
constexpr int64_t TileRowsFor(int64_t /*rows*/) { return 6; }
constexpr int64_t GroupPanels(int64_t rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
#else
inline constexpr int64_t kTileRows = 2;
constexpr int64_t TileRowsFor(int64_t /*rows*/) { return 2; }
constexpr int64_t GroupPanels(int64_t /*rows*/) { return 1; }
#endif
inline constexpr int64_t kMaxGroupPanels = 4;

struct TileOperands {
  int64_t depth;
  const float* a;        // [depth][rows] unless a_row_stride and a_step say otherwise
  const float* b;        // panels of [depth][16]
  int64_t panel_stride;  // between the panels of b
  float* c;
  int64_t c_row_stride;
  bool accumulate;  // add to c instead of overwriting it
  int64_t a_row_stride = 1;
  int64_t a_step = 0;  // from one k to the next; 0: as many as there are rows
  // Tiles of the same rows below each other, and groups of panels beside each other, in one call: what is stored
  // between two tiles, arguments too, waits behind the sums of the first for the stores of c, and the second could not
  // start.
  int64_t num_tiles = 1;
  int64_t num_groups = 1;
  // Panels behind the last group that are read soon: each tile, counted with those of earlier calls, brings one of
  // those behind its group into the L2 cache, as far as they go.
  int64_t num_panels_after = 0;
  int64_t tiles_before = 0;
  // The other tiles of the first group bring the rows of A that lie behind their own.
  bool fetches_rows = false;
};
using TileFunction = void (*)(const TileOperands&);

// One of the tiles of `operands`; `next` is read on by next_step for each k.
template <int kRows, int kPanels>
HWY_INLINE void SumTile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT c, int64_t depth,
                        int64_t a_row_stride, int64_t a_step, int64_t panel_stride, int64_t c_row_stride,
                        bool accumulate, const float* next, int64_t next_step) {
  const hn::CappedTag<float, kPanelColumns> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectorsPerPanel = static_cast<int>(kPanelColumns) / kLanes;
  constexpr int kVectors = kPanels * kVectorsPerPanel;
  // Rows of a panel between its prefetch and its use. A tile of few rows reads as fast as the memory gives, and the
  // hardware's own prefetcher does better then.
  constexpr int64_t kAhead = kRows >= 4 ? 8 * kPanelColumns : 0;
  V sums[kRows][kVectors];
  QX_UNROLL for (int r = 0; r < kRows; ++r) { QX_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d); }
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    QX_UNROLL for (int p = 0; p < kPanels; ++p) __builtin_prefetch(c + r * c_row_stride + p * kPanelColumns);
  }
  for (int64_t k = depth; k != 0; --k) {
    V row[kVectors];
    QX_UNROLL for (int v = 0; v < kVectors; ++v) {
      row[v] = hn::LoadU(d, b + (v / kVectorsPerPanel) * panel_stride + (v % kVectorsPerPanel) * kLanes);
    }
    if constexpr (kAhead != 0) {
      QX_UNROLL for (int p = 0; p < kPanels; ++p) __builtin_prefetch(b + p * panel_stride + kAhead);
      __builtin_prefetch(next, 0, 2);
    }
    QX_UNROLL for (int r = 0; r < kRows; ++r) {
      const V element = hn::Set(d, a[r * a_row_stride]);
      QX_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(element, row[v], sums[r][v]);
    }
    a += a_step;
    b += kPanelColumns;
    next += next_step;
  }
  if (accumulate) {
    QX_UNROLL for (int r = 0; r < kRows; ++r) {
      QX_UNROLL for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::Add(hn::LoadU(d, c + r * c_row_stride + v * kLanes), sums[r][v]);
      }
    }
  }
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    QX_UNROLL for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, c + r * c_row_stride + v * kLanes);
  }
}

template <int kRows, int kPanels>
void MultiplyTiles(const TileOperands& operands) {
  const float* b = operands.b;
  float* first_c = operands.c;
  const int64_t depth = operands.depth, a_row_stride = operands.a_row_stride, panel_stride = operands.panel_stride;
  const int64_t a_step = operands.a_step != 0 ? operands.a_step : kRows;
  const int64_t c_row_stride = operands.c_row_stride, num_tiles = operands.num_tiles;
  const bool accumulate = operands.accumulate;
  bool fetches_rows = operands.fetches_rows;
  int64_t num_panels = (operands.num_groups - 1) * kPanels + operands.num_panels_after;  // behind the group
  for (int64_t group = operands.num_groups; group != 0; --group) {
    const float* a = operands.a;
    float* c = first_c;
    const int64_t num_fetches = (num_panels < kPanels ? num_panels : kPanels) - operands.tiles_before;
    const float* next_panel = b + (kPanels + operands.tiles_before) * panel_stride;
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      const bool fetches_panel = tile < num_fetches;
      const float* next = fetches_panel  ? next_panel + tile * panel_stride
                          : fetches_rows ? a + kRows * a_row_stride
                                         : b;
      SumTile<kRows, kPanels>(a, b, c, depth, a_row_stride, a_step, panel_stride, c_row_stride, accumulate, next,
                              fetches_panel || fetches_rows ? kPanelColumns : 0);
      a += kRows * a_row_stride;
      c += kRows * c_row_stride;
    }
    b += kPanels * panel_stride;
    first_c += kPanels * kPanelColumns;
    num_panels -= kPanels;
    fetches_rows = false;
  }
}

struct Tiles {
  using Function = TileFunction;
  static constexpr int64_t Panels(int64_t rows) { return GroupPanels(rows); }
  template <int kRows, int kPanels>
  static Function Of() {
    return &MultiplyTiles<kRows, kPanels>;
  }
};

// The function for `rows` in 1 ... kTileRows and a power of two of panels up to GroupPanels(rows).
inline TileFunction TileFunctionFor(int64_t rows, int64_t panels) {
  return ChooseTile<Tiles, static_cast<int>(kTileRows)>(rows, panels);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
