// The points at which F(2, 3) and F(4, 3) evaluate their polynomials, and the sizes that follow.
#pragma once

#include <cstdint>

namespace qx::kernels {

// F(4, 3) takes 0, +-a, +-b and infinity, F(2, 3) takes 0, +-1 and infinity.
inline constexpr double kWinogradPointA = 0.75;
inline constexpr double kWinogradPointB = 1.5;

// Inputs along one side of a tile.
constexpr int64_t winograd_input_tile(int64_t output_tile) { return output_tile + 2; }

// Products of one tile for each pair of channels: the positions of the transformed domain.
constexpr int64_t winograd_positions(int64_t output_tile) { return (output_tile + 2) * (output_tile + 2); }

}  // namespace qx::kernels
