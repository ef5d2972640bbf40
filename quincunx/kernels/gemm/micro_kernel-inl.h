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
constexpr int64_t TileRowsFor(int64_t rows) { return rows <= 16 ? 8 : 6; }
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
  // A panel that is read soon after this tile: it is brought into the L2 cache meanwhile. Null where there is none.
  const float* next_panel = nullptr;
};
using TileFunction = void (*)(const TileOperands&);

template <int kRows, int kPanels>
void MultiplyTile(const TileOperands& operands) {
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
  const float* HWY_RESTRICT a = operands.a;
  const float* HWY_RESTRICT b = operands.b;
  const int64_t a_row_stride = operands.a_row_stride;
  const int64_t a_step = operands.a_step != 0 ? operands.a_step : kRows;
  const int64_t panel_stride = operands.panel_stride;
  const float* next = operands.next_panel != nullptr ? operands.next_panel : b;
  const int64_t next_step = operands.next_panel != nullptr ? kPanelColumns : 0;
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    QX_UNROLL for (int p = 0; p < kPanels; ++p) {
      __builtin_prefetch(operands.c + r * operands.c_row_stride + p * kPanelColumns);
    }
  }
  for (int64_t k = operands.depth; k != 0; --k) {
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
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    float* HWY_RESTRICT c = operands.c + r * operands.c_row_stride;
    QX_UNROLL for (int v = 0; v < kVectors; ++v) {
      V sum = sums[r][v];
      if (operands.accumulate) sum = hn::Add(hn::LoadU(d, c + v * kLanes), sum);
      hn::StoreU(sum, d, c + v * kLanes);
    }
  }
}

struct Tiles {
  using Function = TileFunction;
  static constexpr int64_t Panels(int64_t rows) { return GroupPanels(rows); }
  template <int kRows, int kPanels>
  static Function Of() {
    return &MultiplyTile<kRows, kPanels>;
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
