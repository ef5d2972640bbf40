// Softmax over the last dimension.
#pragma once

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// output = exp(input - max) / sum(exp(input - max)) along the last dimension; float32, bfloat16 or float16 [..., N],
// equal shape and dtype, any strides; output may be input. Softmax over another dimension: hand over transposed views.
// -inf gives 0; a row of -inf only, or with +inf or NaN in it, gives NaN throughout (as PyTorch does). Sums are taken
// in f32 in an order that depends on N and the instruction set only. Thread-safe.
//   softmax(scores, scores)
Status softmax(const TensorView& input, const TensorView& output);

}  // namespace qx::kernels
