// The product with low-precision weights in plain loops and double precision, written for reading: the measure of
// low_precision_gemm.
#pragma once

#include <cstdint>
#include <vector>

#include "quincunx/kernels/low_precision_gemm/low_precision_gemm.h"

namespace qx::kernels {

// The activations that are multiplied: those of `a` [rows, inner], contiguous, rounded as options.input says. Exact in
// double: an 8-bit level times an f32 scale.
std::vector<double> rounded_input_reference(const float* a, int64_t rows, int64_t inner, WeightFormat format,
                                            const LowPrecisionOptions& options);

// output[rows, columns] from contiguous operands; `weight` as unpack_weight gives it; bias and residual may be null.
void low_precision_gemm_reference(const float* a, const float* weight, int64_t rows, int64_t inner, int64_t columns,
                                  WeightFormat format, const LowPrecisionOptions& options, const float* bias,
                                  const float* residual, double* output);

}  // namespace qx::kernels
