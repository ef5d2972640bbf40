// The dot tiles in plain loops, for CPUs without a variant of their own. Units are bytes.
#pragma once

#include "quincunx/kernels/low_precision_gemm/dot_tile.h"

namespace qx::kernels {

inline constexpr DotTileShape kShapePortable{4, 1, 1};
void int8_tile_portable(int64_t rows, int64_t panels, const DotTile& tile);
void int8_grouped_tile_portable(int64_t rows, int64_t panels, const DotTile& tile);
void int4_grouped_tile_portable(int64_t rows, int64_t panels, const DotTile& tile);

}  // namespace qx::kernels
