// Register tiles of attention: up to 6 queries by 16 keys, and up to 6 queries by 16 value columns.
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
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = kAttentionPanel / hn::MaxLanes(TileTag());

// scores[r][0..16) = sum over d of query[d][r] * keys[d][0..16).
template <int kRows>
void ScoreTile(const float* HWY_RESTRICT query, const float* HWY_RESTRICT keys, int64_t head_dim,
               float* HWY_RESTRICT scores, int64_t stride) {
  const TileTag d;
  constexpr int kLanes = kAttentionPanel / kTileVectors;
  TileVector sum[kRows][kTileVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < head_dim; ++k) {
    TileVector key[kTileVectors];
    for (int v = 0; v < kTileVectors; ++v) key[v] = hn::Load(d, keys + k * kAttentionPanel + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const TileVector q = hn::Set(d, query[k * kRows + r]);
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::MulAdd(q, key[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kTileVectors; ++v) hn::Store(sum[r][v], d, scores + r * stride + v * kLanes);
  }
}

// output[r][0..16) = output[r][0..16) * correction[r] + sum over j < num_keys of weights[r][j] * values[j][0..16).
template <int kRows>
void ValueTile(const float* HWY_RESTRICT weights, int64_t weight_stride, const float* HWY_RESTRICT values,
               int64_t num_keys, const float* HWY_RESTRICT correction, float* HWY_RESTRICT output, int64_t stride) {
  const TileTag d;
  constexpr int kLanes = kAttentionPanel / kTileVectors;
  TileVector sum[kRows][kTileVectors];
  for (int r = 0; r < kRows; ++r) {
    const TileVector c = hn::Set(d, correction[r]);
    for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::Mul(c, hn::Load(d, output + r * stride + v * kLanes));
  }
  for (int64_t j = 0; j < num_keys; ++j) {
    TileVector value[kTileVectors];
    for (int v = 0; v < kTileVectors; ++v) value[v] = hn::Load(d, values + j * kAttentionPanel + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const TileVector w = hn::Set(d, weights[r * weight_stride + j]);
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::MulAdd(w, value[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kTileVectors; ++v) hn::Store(sum[r][v], d, output + r * stride + v * kLanes);
  }
}

// Calls tile(RowCount<rows>()), with the number of rows as a compile-time constant.
template <int kRows>
struct RowCount {
  static constexpr int kValue = kRows;
};
template <class Tile>
HWY_INLINE void WithRowCount(int64_t rows, const Tile& tile) {
  switch (rows) {
    case 1: return tile(RowCount<1>());
    case 2: return tile(RowCount<2>());
    case 3: return tile(RowCount<3>());
    case 4: return tile(RowCount<4>());
    case 5: return tile(RowCount<5>());
    default: return tile(RowCount<6>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
