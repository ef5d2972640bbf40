// Products by instructions that multiply bytes or pairs of bf16: quantised activations, and bf16 by bf16.
#pragma once

#include "quincunx/kernels/low_precision_gemm/dot_tile.h"
#include "quincunx/kernels/low_precision_gemm/low_precision_product.h"
#include "quincunx/kernels/low_precision_gemm/quantize_rows.h"

namespace qx::kernels {

// True if the CPU, as far as the dispatch targets in force allow, has tdpbf16ps or vdpbf16ps.
bool has_bfloat16_dot();

// "amx", "avx512vnni", "avx2" or "portable": what multiplies many rows of quantised activations by int8 weights.
const char* integer_dot_name();

// How rows are packed and tiles multiplied.
struct DotKernel {
  DotUnits units;
  DotTileShape shape;
  DotTileFunction multiply;
};

// product.input is not kNone, or the weights and the activations are bf16 and has_bfloat16_dot().
void multiply_dot(const LowPrecisionProduct& product);
// The same by a kernel of the caller's choice, which must fit the weights.
void multiply_dot(const LowPrecisionProduct& product, const DotKernel& kernel);

}  // namespace qx::kernels
