// The product of a gated feed-forward layer in one pass over its input:
//
//   output[M, N] = row_scale[M] * activation(scale * (A gate) + bias[N]) * (scale * (A up) + up_bias[N]) + residual[M,
//   N]
//
// The panels of gate and up alternate in one packed weight, so that both sums of an element meet in registers and no
// [M, 2 N] array is written.
#pragma once

#include "quincunx/kernels/gemm/gemm.h"

namespace qx::kernels {

// gate and up, [inner, columns] each: a panel of 16 columns of gate, the same of up, the next of gate and so on. Does
// not own its memory.
struct PackedGatedMatrix {
  const float* data = nullptr;
  int64_t inner = 0;
  int64_t columns = 0;
};

// Floats that a packed pair of [inner, columns] matrices takes.
Result<int64_t> packed_gated_matrix_size(int64_t inner, int64_t columns);

// Packs `gate` and `up`, f32 [K, N] with any strides, into `storage`, which must hold packed_gated_matrix_size(K, N)
// floats and outlive the result. The two halves of one doubled weight are views of it.
Result<PackedGatedMatrix> pack_gated(const TensorView& gate, const TensorView& up, std::span<float> storage);

// As gemm; `up_bias` is f32 [N] or null. K is summed in one run. Thread-safe.
Status gated_gemm(const TensorView& a, const PackedGatedMatrix& b, const TensorView& output, const GemmOptions& options,
                  const TensorView* up_bias = nullptr);

}  // namespace qx::kernels
