// Activations as the dot tiles read them: quantised to 8 bits, or bf16 as they are, in units of four bytes.
#pragma once

#include <cstdint>

#include "quincunx/kernels/low_precision_gemm/low_precision_product.h"

namespace qx::kernels {

// Both return the scale: x = (q - zero_point) * scale. `count` must be a multiple of 16.
//
// q = round(x * 127 / largest magnitude), zero_point = 0. The scale is NaN, and q zero, where the values hold NaN or an
// infinity.
float quantize_dynamic(const float* values, int64_t count, int8_t* q);
// q = clamp(round(x / scale) + zero_point, -128, 127). The scale is NaN, and q zero, where the values hold NaN.
float quantize_static(const float* values, int64_t count, float scale, int32_t zero_point, int8_t* q);

enum class DotUnits : uint8_t { kBytes, kWords, kHalves, kBlockedBytes, kBlockedHalves };  // see DotTile

// Units of a row that stand together in blocked ones.
inline constexpr int64_t kUnitsPerBlock = 16;

inline bool is_blocked(DotUnits units) { return units == DotUnits::kBlockedBytes || units == DotUnits::kBlockedHalves; }
inline bool is_halves(DotUnits units) { return units == DotUnits::kHalves || units == DotUnits::kBlockedHalves; }
inline bool is_bytes(DotUnits units) { return units == DotUnits::kBytes || units == DotUnits::kBlockedBytes; }

// How the rows of one tile are packed.
struct DotRowsLayout {
  DotUnits units;
  int64_t row_units;     // of a row: K is padded to whole rows of a panel, or to groups
  int64_t stored_units;  // the same, or whole blocks of them
  int64_t group_length;  // activations that share a scale: 32, or all
  int64_t num_groups;
  int32_t weight_offset;  // 128, or 8 for nibbles
};
DotRowsLayout dot_rows_layout(const PackedWeight& weight, DotUnits units);

// Of a tile of `rows` rows.
struct PackedDotRows {
  int32_t* units;   // [stored_units][rows], or blocked
  float* scales;    // [num_groups][rows]
  int32_t* starts;  // [num_groups][rows]; [num_segments][rows] where the weights are not grouped
};

// Packs rows [row, row + rows) of product.a.
void pack_dot_rows(const LowPrecisionProduct& product, const DotRowsLayout& layout, int64_t row, int64_t rows,
                   const PackedDotRows& packed);

}  // namespace qx::kernels
