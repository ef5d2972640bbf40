// Products by instructions that multiply bytes or pairs of bf16: quantised activations, and bf16 by bf16.
#pragma once

#include "quincunx/kernels/low_precision_gemm/low_precision_product.h"

namespace qx::kernels {

// True if the CPU, as far as the dispatch targets in force allow, has vdpbf16ps.
bool has_bfloat16_dot();

// "avx512vnni", "avx2" or "portable": what multiplies quantised activations.
const char* integer_dot_name();

// product.input is not kNone, or the weights and the activations are bf16 and has_bfloat16_dot().
void multiply_dot(const LowPrecisionProduct& product);

}  // namespace qx::kernels
