// Softmax and its logarithm.
#pragma once

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// output = exp(input - max) / sum(exp(input - max)) along dimension `dim` (negative: counted from the end); float32,
// bfloat16 or float16, equal shape and dtype, any strides; output may be input. -inf gives 0; a row of -inf only, or
// with +inf or NaN in it, gives NaN throughout (as PyTorch does). Sums are taken in f32 in an order that depends on
// the length, the strides and the instruction set only. With AVX-512 a result in
// bfloat16 errs by 2^-14 of itself before it is rounded. Thread-safe.
//   softmax(scores, 1, scores)
Status softmax(const TensorView& input, int dim, const TensorView& output);
// Along the last dimension.
Status softmax(const TensorView& input, const TensorView& output);

// output = (input - max) - log(sum(exp(input - max))) along `dim`; the same arguments. -inf stays -inf.
Status log_softmax(const TensorView& input, int dim, const TensorView& output);

}  // namespace qx::kernels
