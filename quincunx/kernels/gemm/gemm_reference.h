// The matrix product and its epilogue in plain loops and double precision, written for reading: the measure of gemm.
#pragma once

#include <cstdint>

#include "quincunx/kernels/gemm/gemm.h"

namespace qx::kernels {

double activation_reference(Activation activation, double x);

// a[rows, inner], b[inner, columns], bias[columns] or null, residual[rows, columns] or null: contiguous.
void gemm_reference(const float* a, const float* b, int64_t rows, int64_t inner, int64_t columns, float scale,
                    const float* bias, Activation activation, const float* residual, double* output);

}  // namespace qx::kernels
