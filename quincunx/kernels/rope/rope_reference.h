// The scalar reference of rope.h, in double precision, on one head at one position.
#pragma once

#include <span>

#include "quincunx/kernels/rope/rope.h"

namespace qx::kernels {

// cos and sin have one element a pair; elements of x beyond 2 * cos.size() are copied.
void rope_reference(RopeForm form, std::span<const double> x, std::span<const double> cos, std::span<const double> sin,
                    std::span<double> y);

}  // namespace qx::kernels
