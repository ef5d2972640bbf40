// Register tiles of attention: some queries by one or two panels of 16 keys, or of 16 value columns.
// Include from a file that foreach_target.h compiles.
#if defined(QUINCUNX_KERNELS_ATTENTION_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_ATTENTION_ATTENTION_TILES_INL_H_
#undef QUINCUNX_KERNELS_ATTENTION_ATTENTION_TILES_INL_H_
#else
#define QUINCUNX_KERNELS_ATTENTION_ATTENTION_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quincunx/kernels/attention/attention_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using TileTag = hn::CappedTag<float, kAttentionPanel>;
using TileVector = hn::Vec<TileTag>;
inline constexpr int kTileVectors = kAttentionPanel / hn::MaxLanes(TileTag());
#if HWY_TARGET == HWY_AVX3
// 24 sums, two vectors of keys and a query element in 32 registers: a 6 x 16 tile would wait for its loads.
inline constexpr int kTileRows = 12;
inline constexpr int kTilePanels = 2;
#else
// 12 sums, two vectors of keys and a query element in the 16 registers of AVX2.
inline constexpr int kTileRows = 6;
inline constexpr int kTilePanels = 1;
#endif

// The panels that a tile reads, `stride` floats apart.
struct Panels {
  const float* first;
  int64_t stride;
};

// sums[r][0 .. 16 kPanels) += sum over k < depth of weights[r * row_step + k * depth_step] * panels[k][0 .. 16 kPanels)
template <int kRows, int kPanels>
HWY_INLINE void AccumulateTile(const float* HWY_RESTRICT weights, int64_t row_step, int64_t depth_step, int64_t depth,
                               const Panels& panels, TileVector (&sums)[kRows][kPanels * kTileVectors]) {
  const TileTag d;
  constexpr int kLanes = kAttentionPanel / kTileVectors;
  const float* HWY_RESTRICT first = panels.first;
  for (int64_t k = 0; k < depth; ++k) {
    TileVector column[kPanels * kTileVectors];
    for (int p = 0; p < kPanels; ++p) {
      for (int v = 0; v < kTileVectors; ++v) {
        column[p * kTileVectors + v] = hn::Load(d, first + p * panels.stride + k * kAttentionPanel + v * kLanes);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const TileVector w = hn::Set(d, weights[r * row_step + k * depth_step]);
      for (int v = 0; v < kPanels * kTileVectors; ++v) sums[r][v] = hn::MulAdd(w, column[v], sums[r][v]);
    }
  }
}

// scores[r][0 .. 16 kPanels) = sum over d of query[d][r] * keys[d][0 .. 16 kPanels).
template <int kRows, int kPanels>
void ScoreTile(const float* HWY_RESTRICT query, const Panels& keys, int64_t head_dim, float* HWY_RESTRICT scores,
               int64_t stride) {
  const TileTag d;
  constexpr int kVectors = kPanels * kTileVectors, kLanes = kAttentionPanel / kTileVectors;
  TileVector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  AccumulateTile<kRows, kPanels>(query, 1, kRows, head_dim, keys, sums);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, scores + r * stride + v * kLanes);
  }
}

// output[r][0 .. 16 kPanels) = output[r][...] * correction[r] + sum over j < num_keys of weights[r][j] *
// values[j][...).
template <int kRows, int kPanels>
void ValueTile(const float* HWY_RESTRICT weights, int64_t weight_stride, const Panels& values, int64_t num_keys,
               const float* HWY_RESTRICT correction, float* HWY_RESTRICT output, int64_t stride) {
  const TileTag d;
  constexpr int kVectors = kPanels * kTileVectors, kLanes = kAttentionPanel / kTileVectors;
  TileVector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    const TileVector c = hn::Set(d, correction[r]);
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Mul(c, hn::Load(d, output + r * stride + v * kLanes));
  }
  AccumulateTile<kRows, kPanels>(weights, weight_stride, 1, num_keys, values, sums);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, output + r * stride + v * kLanes);
  }
}

// Calls tile(RowCount<rows>()), with the number of rows as a compile-time constant of at most kTileRows.
template <int kRows>
struct RowCount {
  static constexpr int kValue = kRows;
};
template <int kRows = kTileRows, class Tile>
HWY_INLINE void WithRowCount(int64_t rows, const Tile& tile) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return WithRowCount<kRows - 1>(rows, tile);
  }
  tile(RowCount<kRows>());
}
// The same with the number of panels, 1 or kTilePanels, as the second argument.
template <class Tile>
HWY_INLINE void WithTileSize(int64_t rows, int64_t panels, const Tile& tile) {
  WithRowCount(rows, [&](auto count) HWY_ATTR {
    if constexpr (kTilePanels > 1) {
      if (panels >= kTilePanels) return tile(count, RowCount<kTilePanels>());
    }
    tile(count, RowCount<1>());
  });
}
// Calls tile(first panel, panels) for `columns` columns in steps of kTilePanels panels and at last single ones.
template <class Tile>
HWY_INLINE void ForEachTileColumn(int64_t columns, const Tile& tile) {
  const int64_t num_panels = (columns + kAttentionPanel - 1) / kAttentionPanel;
  for (int64_t panel = 0; panel < num_panels;) {
    const int64_t panels = panel + kTilePanels <= num_panels ? kTilePanels : 1;
    tile(panel * kAttentionPanel, panels);
    panel += panels;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
