// A matrix product of any dtype, with what may follow it.
#pragma once

#include "quincunx/kernels/gemm/gemm.h"
#include "quincunx/lite/ops/call.h"

namespace qx::lite {

struct ProductOptions {
  const Packed* packed = nullptr;    // b, packed; b itself is not read then
  const TensorView* bias = nullptr;  // [N]
  kernels::Activation activation = kernels::Activation::kNone;
  const TensorView* residual = nullptr;  // [M, N]
  double scale = 1;
};

// output = activation(scale * a b + bias) + residual for a [M, K] and b [K, N] of any strides. float32, bfloat16 and
// float16 are computed in f32; float64 and integers by plain loops without activation.
Status multiply(const TensorView& a, const TensorView& b, const ProductOptions& options, const TensorView& output);

// Packs a constant [K, N] matrix of floating point for multiply().
Result<Packed> pack_matrix(const TensorView& matrix);
// True for what pack_matrix takes.
bool is_packable(const TensorView& matrix);

// x [..., K] as [M, K]: a view where strides allow it, else a copy that `storage` holds.
Result<TensorView> as_matrix(const TensorView& x, std::shared_ptr<Storage>& storage);

}  // namespace qx::lite
