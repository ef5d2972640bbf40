// The innermost product: tiles of the transformed input times panels of transformed weights, all sums in registers.
#if defined(QUINCUNX_KERNELS_WINOGRAD_CONVOLUTION_WINOGRAD_MICRO_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_WINOGRAD_CONVOLUTION_WINOGRAD_MICRO_KERNEL_INL_H_
#undef QUINCUNX_KERNELS_WINOGRAD_CONVOLUTION_WINOGRAD_MICRO_KERNEL_INL_H_
#else
#define QUINCUNX_KERNELS_WINOGRAD_CONVOLUTION_WINOGRAD_MICRO_KERNEL_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "quincunx/base/unroll.h"
#include "quincunx/kernels/gemm/tile_choice-inl.h"
#include "quincunx/kernels/winograd_convolution/winograd_convolution_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As in gemm: 14 x 32 sums fill 28 of 32 registers of 16 lanes, 6 x 16 fill 12 of 16 registers of 8 lanes.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int64_t kWinogradRows = 14;
inline constexpr int64_t kWinogradGroupPanels = 2;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int64_t kWinogradRows = 6;
inline constexpr int64_t kWinogradGroupPanels = 1;
#else
inline constexpr int64_t kWinogradRows = 2;
inline constexpr int64_t kWinogradGroupPanels = 1;
#endif

struct WinogradTileOperands {
  int64_t depth;         // channels
  const float* v;        // [blocks of 16 channels][rows][16]
  const float* u;        // panels of [depth][16]
  int64_t panel_stride;  // between the panels of u
  float* m;              // [rows], 16 floats a panel
  int64_t m_row_stride;
};
using WinogradTileFunction = void (*)(const WinogradTileOperands&);

template <int kRows, int kPanels>
void MultiplyWinogradTile(const WinogradTileOperands& operands) {
  const hn::CappedTag<float, kWinogradPanel> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectorsPerPanel = static_cast<int>(kWinogradPanel) / kLanes;
  constexpr int kVectors = kPanels * kVectorsPerPanel;
  V sums[kRows][kVectors];
  QX_UNROLL for (int r = 0; r < kRows; ++r) { QX_UNROLL for (int i = 0; i < kVectors; ++i) sums[r][i] = hn::Zero(d); }
  const float* HWY_RESTRICT block = operands.v;
  const float* HWY_RESTRICT u = operands.u;
  const int64_t panel_stride = operands.panel_stride;
  for (int64_t left = operands.depth; left > 0; left -= kWinogradPanel) {
    // The rows of a block are 64 bytes apart: one address register serves all of them.
    const float* HWY_RESTRICT v = block;
    for (int64_t k = std::min(left, kWinogradPanel); k != 0; --k) {
      V row[kVectors];
      QX_UNROLL for (int i = 0; i < kVectors; ++i) {
        row[i] = hn::LoadU(d, u + (i / kVectorsPerPanel) * panel_stride + (i % kVectorsPerPanel) * kLanes);
      }
      QX_UNROLL for (int r = 0; r < kRows; ++r) {
        const V element = hn::Set(d, v[r * kWinogradPanel]);
        QX_UNROLL for (int i = 0; i < kVectors; ++i) sums[r][i] = hn::MulAdd(element, row[i], sums[r][i]);
      }
      ++v;
      u += kWinogradPanel;
    }
    block += kRows * kWinogradPanel;
  }
  QX_UNROLL for (int r = 0; r < kRows; ++r) {
    float* HWY_RESTRICT m = operands.m + r * operands.m_row_stride;
    QX_UNROLL for (int i = 0; i < kVectors; ++i) hn::StoreU(sums[r][i], d, m + i * kLanes);
  }
}

struct WinogradTiles {
  using Function = WinogradTileFunction;
  static constexpr int64_t Panels(int64_t /*rows*/) { return kWinogradGroupPanels; }
  template <int kRows, int kPanels>
  static Function Of() {
    return &MultiplyWinogradTile<kRows, kPanels>;
  }
};

// The function for `rows` in 1 ... kWinogradRows and 1 ... kWinogradGroupPanels panels.
inline WinogradTileFunction WinogradTileFunctionFor(int64_t rows, int64_t panels) {
  return ChooseTile<WinogradTiles, static_cast<int>(kWinogradRows)>(rows, panels);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
