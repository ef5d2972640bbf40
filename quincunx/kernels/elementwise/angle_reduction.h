// Reduction of large angles for sine and cosine.
#pragma once

#include <cstdint>

namespace qx::kernels {

// x = quadrant * pi/2 + remainder (modulo 2 pi) with |remainder| <= pi/4.
struct ReducedAngle {
  float remainder;
  int32_t quadrant;  // 0 to 3
};

// For 2^28 <= |x| < infinity, by Payne and Hanek's method: x is multiplied by those 96 bits of 2/pi that decide its
// place within a turn. The remainder is within half a unit in the last place of the exact one; NaN and infinities give
// NaN. Thread-safe.
ReducedAngle reduce_large_angle(float x);

}  // namespace qx::kernels
