// The innermost product: rows of input that pointers name, times panels of weights, all sums in registers.
#if defined(QUINCUNX_KERNELS_CONVOLUTION_PANEL_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_CONVOLUTION_PANEL_TILES_INL_H_
#undef QUINCUNX_KERNELS_CONVOLUTION_PANEL_TILES_INL_H_
#else
#define QUINCUNX_KERNELS_CONVOLUTION_PANEL_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quincunx/base/unroll.h"
#include "quincunx/kernels/convolution/convolution_problem.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Tiles have an even number of rows or one; the rows that a ragged one lacks repeat its last.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int64_t kPanelTileRows = 14;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int64_t kPanelTileRows = 6;
#else
inline constexpr int64_t kPanelTileRows = 2;
#endif
inline constexpr int64_t kMaxTilePanels = 8;
// A last panel of at most so many channels takes narrower vectors, of which cores start more in a cycle.
inline constexpr int64_t kNarrowColumns = 8;

constexpr int64_t PaddedRows(int64_t rows) { return rows == 1 ? 1 : (rows + 1) / 2 * 2; }

// Panels that are multiplied together. Fewer rows take more: a fused multiply-add takes four cycles and up to two start
// in each, so that fewer than eight independent sums would wait for each other.
constexpr int64_t TilePanels([[maybe_unused]] int64_t rows) {
#if HWY_TARGET <= HWY_AVX3
  return rows == 1 ? 8 : rows <= 6 ? 4 : 2;
#elif HWY_TARGET == HWY_AVX2
  return rows == 1 ? 4 : rows <= 2 ? 2 : 1;
#else
  return 1;
#endif
}

struct PanelTile {
  const float* const* rows;       // [num_segments][padded rows]
  const int64_t* weight_offsets;  // [num_segments]
  int64_t num_segments;
  int64_t depth;  // elements of a row
  const float* weight;
  int64_t panel_stride;
  const float* initial;  // what the sums start with, or null
  float* const* sums;    // [padded rows]
  int64_t sums_offset;   // added to each
};
using PanelTileFunction = void (*)(const PanelTile&);

// Lets the lines that the sums of a row go to arrive while they are computed.
template <int kPanels>
HWY_INLINE void PrefetchSums(const float* row) {
  QX_UNROLL for (int c = 0; c < kPanels; ++c) __builtin_prefetch(row + c * kChannelBlock, 1, 3);
}

// What the sums of all rows start with: `initial` [kVectors vectors], or zeros where it is null.
template <int kRows, int kVectors, class D>
HWY_INLINE void StartSums(D d, const float* initial, hn::Vec<D> (&sums)[kRows][kVectors]) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  QX_UNROLL for (int v = 0; v < kVectors; ++v) {
    const hn::Vec<D> start = initial != nullptr ? hn::LoadU(d, initial + v * kLanes) : hn::Zero(d);
    QX_UNROLL for (int r = 0; r < kRows; ++r) sums[r][v] = start;
  }
}

// The first kWidth columns of each panel.
template <int kRows, int kPanels, int kWidth>
void MultiplyPanelTile(const PanelTile& tile) {
  const hn::CappedTag<float, kWidth> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectorsPerPanel = kWidth / kLanes;
  constexpr int kVectors = kPanels * kVectorsPerPanel;
  V sums[kRows][kVectors];
  QX_UNROLL for (int r = 0; r < kRows; ++r) PrefetchSums<kPanels>(tile.sums[r] + tile.sums_offset);
  StartSums(d, tile.initial, sums);
  // Rows of a panel between its prefetch and its use. Of few pixels more fetch in vain: 5 % slower.
  constexpr int64_t kAhead = kRows >= 10 ? 24 * kChannelBlock : kRows >= 4 ? 8 * kChannelBlock : 0;
  const int64_t panel_stride = tile.panel_stride;
  const int64_t depth = tile.depth;
  for (int64_t t = 0; t < tile.num_segments; ++t) {
    const float* HWY_RESTRICT a[kRows];
    QX_UNROLL for (int r = 0; r < kRows; ++r) a[r] = tile.rows[t * kRows + r];
    const float* HWY_RESTRICT b = tile.weight + tile.weight_offsets[t];
    for (int64_t k = 0; k < depth; ++k) {
      V weights[kVectors];
      QX_UNROLL for (int v = 0; v < kVectors; ++v) {
        weights[v] = hn::LoadU(d, b + (v / kVectorsPerPanel) * panel_stride + (v % kVectorsPerPanel) * kLanes);
      }
      if constexpr (kAhead != 0) {
        QX_UNROLL for (int p = 0; p < kPanels; ++p) __builtin_prefetch(b + p * panel_stride + kAhead);
      }
      QX_UNROLL for (int r = 0; r < kRows; ++r) {
        const V element = hn::Set(d, a[r][k]);
        QX_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(element, weights[v], sums[r][v]);
      }
      b += kChannelBlock;
    }
  }
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    float* row = tile.sums[r] + tile.sums_offset;
    QX_UNROLL for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, row + v * kLanes);
  }
}

template <int kRows>
PanelTileFunction PanelTileFunctionForRows(int64_t rows, int64_t panels, bool is_narrow) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return PanelTileFunctionForRows<(kRows == 2 ? 1 : kRows - 2)>(rows, panels, is_narrow);
  }
  constexpr int kWidth = static_cast<int>(kChannelBlock);
  constexpr int64_t kWidest = TilePanels(kRows);
  if (is_narrow) return &MultiplyPanelTile<kRows, 1, static_cast<int>(kNarrowColumns)>;
  if constexpr (kWidest >= 8) {
    if (panels == 8) return &MultiplyPanelTile<kRows, 8, kWidth>;
  }
  if constexpr (kWidest >= 4) {
    if (panels == 4) return &MultiplyPanelTile<kRows, 4, kWidth>;
  }
  if constexpr (kWidest >= 2) {
    if (panels == 2) return &MultiplyPanelTile<kRows, 2, kWidth>;
  }
  return &MultiplyPanelTile<kRows, 1, kWidth>;
}

// `padded_rows` is of PaddedRows, `panels` a power of two up to TilePanels(padded_rows). Narrow: one panel, of which
// the first kNarrowColumns count.
inline PanelTileFunction PanelTileFunctionFor(int64_t padded_rows, int64_t panels, bool is_narrow) {
  return PanelTileFunctionForRows<static_cast<int>(kPanelTileRows)>(padded_rows, panels, is_narrow);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
