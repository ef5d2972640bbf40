// Newton-Schulz in plain loops and double precision, written for reading: the measure of the fast kernels.
#pragma once

#include <cstdint>
#include <span>

#include "quincunx/kernels/newton_schulz/newton_schulz.h"

namespace qx::kernels {

// `input` and `output` are contiguous [rows, cols] and may be the same. Finite input of moderate scale only.
void newton_schulz_reference(const double* input, int64_t rows, int64_t cols, std::span<const NewtonSchulzStep> steps,
                             double eps, double* output);

}  // namespace qx::kernels
