// The float8 formats as PyTorch rounds them: to nearest even, past the largest value to infinity or NaN.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"

namespace qx::kernels {

// `dtype` is one of the five float8 types. Exact.
float float_from_float8_bits(DType dtype, uint8_t bits);
uint8_t float8_bits_from_float(DType dtype, float value);

}  // namespace qx::kernels
