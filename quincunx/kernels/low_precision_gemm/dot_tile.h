// Tiles of the products whose instructions take four bytes of the activations at once: vpmaddwd, vpmaddubsw, vpdpbusd,
// vdpbf16ps, tdpbsud and tdpbf16ps. The variants for one instruction set each stand in a file of their own.
#pragma once

#include <cstdint>

namespace qx::kernels {

// A tile of rows times some panels of 16 columns. A unit of a row is 4 bytes:
//   bytes   int8 of k, k+1, k+2, k+3
//   words   int16 of k and k+2, then a second unit of k+1 and k+3
//   halves  bf16 of k and k+1
// "Blocked": as tile registers are loaded, [blocks of 16 units][rows][16 units]; the last block ends with zeros.
struct DotTile {
  const int32_t* a;         // units [num_units][rows], or blocked
  const float* a_scales;    // [groups][rows]; one group unless the weights are grouped; null for halves
  const int32_t* a_starts;  // [groups][rows], what the sums start at: less what the weights' offset adds
  int64_t num_rows_of_b;    // rows of 64 bytes of a panel (int8, halves), or groups
  const uint8_t* b;         // the first panel
  int64_t panel_stride;     // bytes between panels
  const uint8_t* b_scales;  // int8: [16] f32 of the first panel
  const uint8_t* b_sums;    // int8: [16] int32 of the first panel
  int32_t zero_point;       // int8
  float* c;
  int64_t c_row_stride;
  bool accumulate;  // int8, halves: add to c instead of overwriting it
};
using DotTileFunction = void (*)(int64_t rows, int64_t panels, const DotTile& tile);

// rows: 1 ... kMaxRows; panels: a power of two, at most kSingleRowPanels for one row and kPanels for more.
struct DotTileShape {
  int64_t max_rows;
  int64_t panels;
  int64_t single_row_panels;
};

inline constexpr DotTileShape kInt8ShapeAvx2{4, 1, 4};
inline constexpr DotTileShape kGroupedShapeAvx2{4, 1, 4};
void int8_tile_avx2(int64_t rows, int64_t panels, const DotTile& tile);          // words
void int8_grouped_tile_avx2(int64_t rows, int64_t panels, const DotTile& tile);  // words
void int4_grouped_tile_avx2(int64_t rows, int64_t panels, const DotTile& tile);  // bytes

inline constexpr DotTileShape kInt8ShapeAvx512Vnni{14, 2, 8};
inline constexpr DotTileShape kGroupedShapeAvx512Vnni{6, 2, 4};
void int8_tile_avx512vnni(int64_t rows, int64_t panels, const DotTile& tile);          // bytes
void int8_grouped_tile_avx512vnni(int64_t rows, int64_t panels, const DotTile& tile);  // bytes
void int4_grouped_tile_avx512vnni(int64_t rows, int64_t panels, const DotTile& tile);  // bytes

inline constexpr DotTileShape kBFloat16ShapeAvx512Bf16{14, 2, 8};
void bfloat16_tile_avx512bf16(int64_t rows, int64_t panels, const DotTile& tile);  // halves

// Two registers of rows by two of panels. may_use_tile_registers() must have been asked.
inline constexpr DotTileShape kShapeAmx{32, 2, 4};
void int8_tile_amx(int64_t rows, int64_t panels, const DotTile& tile);      // bytes, blocked
void bfloat16_tile_amx(int64_t rows, int64_t panels, const DotTile& tile);  // halves, blocked

}  // namespace qx::kernels
