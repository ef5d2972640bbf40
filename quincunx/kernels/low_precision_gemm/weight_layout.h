// Where the weights of each format lie. A panel holds 16 columns; its rows of 64 bytes are what one AVX-512 register
// takes, or two of AVX2:
//
//   kBFloat16      [K/2][16 columns][2 k]: a 32-bit lane shifted left is the even k as f32, masked the odd one
//   kFloat16       [K][16 columns]
//   kInt8          [K/4][16 columns][4 k] of q + 128, then [16] f32 scales, then for each segment of K [16] int32 sums
//   kInt8Grouped   for each 32 k: [8][16 columns][4 k] of q + 128, then [16] f16 scales
//   kInt4Grouped   for each 32 k: [4][16 columns][4 bytes], byte i with q + 8 of k = i below and k = 4 + i above, then
//                  [16] f16 scales
//
// Beyond the last k and the last column q and the scales are zero. Unsigned weights are what vpmaddubsw and vpdpbusd
// want; what the offset adds is taken off by the sum of a row's activations.
#pragma once

#include <cstdint>

#include "quincunx/kernels/low_precision_gemm/low_precision_gemm.h"

namespace qx::kernels {

inline constexpr int64_t kWeightPanelColumns = 16;
inline constexpr int64_t kGroupLength = 32;
inline constexpr int64_t kPanelRowBytes = 64;
inline constexpr int64_t kGroupScaleBytes = 2 * kWeightPanelColumns;

// The longest run of K that is summed in int32: 255 * 128 * 32768 stays below 2^31.
inline constexpr int64_t kMaxSegment = 32768;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t num_weight_panels(int64_t columns) { return ceil_div(columns, kWeightPanelColumns); }
inline int64_t num_segments(int64_t inner) { return ceil_div(inner, kMaxSegment); }

inline bool is_grouped(WeightFormat format) {
  return format == WeightFormat::kInt8Grouped || format == WeightFormat::kInt4Grouped;
}

// k that stand in one row of a panel; a multiple of it is padded to.
inline int64_t k_per_panel_row(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBFloat16: return 2;
    case WeightFormat::kFloat16: return 1;
    case WeightFormat::kInt8:
    case WeightFormat::kInt8Grouped: return 4;
    case WeightFormat::kInt4Grouped: return 8;
  }
  return 1;
}

inline int64_t group_bytes(WeightFormat format) {
  return kGroupLength / k_per_panel_row(format) * kPanelRowBytes + kGroupScaleBytes;
}

// Of a panel; `inner` is small enough for the size in bytes to fit 64 bits.
inline int64_t panel_bytes(WeightFormat format, int64_t inner) {
  switch (format) {
    case WeightFormat::kBFloat16: return ceil_div(inner, 2) * kPanelRowBytes;
    case WeightFormat::kFloat16: return inner * kPanelRowBytes / 2;
    case WeightFormat::kInt8: return (ceil_div(inner, 4) + 1 + num_segments(inner)) * kPanelRowBytes;
    case WeightFormat::kInt8Grouped:
    case WeightFormat::kInt4Grouped: return ceil_div(inner, kGroupLength) * group_bytes(format);
  }
  return 0;
}

// Offset of the scales of a kInt8 panel; the sums of segment s follow (1 + s) rows behind.
inline int64_t int8_scales_offset(int64_t inner) { return ceil_div(inner, 4) * kPanelRowBytes; }

}  // namespace qx::kernels
