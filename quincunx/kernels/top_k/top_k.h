// The largest or smallest elements of rows, and whole rows in order, with indices.
#pragma once

#include <cstdint>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// The order is PyTorch's: NaN counts as larger than every number, -0 and 0 are equal, and equal elements stay in the
// order of their indices. Both functions take an input [..., N] of float32, bfloat16 or float16 with N below 2^31,
// values of its dtype and int64 indices, any strides, and write the elements as they were (signs of zero and NaN too).
// Thread-safe; the same bits for any number of threads.

// values, indices: [..., N], ascending or descending. values may be the input.
//   sort(scores, true, sorted, order)
Status sort(const TensorView& input, bool descending, const TensorView& values, const TensorView& indices);

// values, indices: [..., K] with K <= N: the first K of the sorted row, in order.
//   top_k(logits, true, values, indices)
Status top_k(const TensorView& input, bool largest, const TensorView& values, const TensorView& indices);

}  // namespace qx::kernels
