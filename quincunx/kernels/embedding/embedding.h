// Rows of a table by index, one by one or combined to bags.
#pragma once

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// output[i] = table[indices[i]]. table: [V, D] of float32, bfloat16 or float16; indices: int64 or int32 of any shape,
// 0 to V - 1; output: [..., D] of the table's dtype with the indices' shape in front. Any strides. Every index is
// checked before anything is written. Thread-safe.
//   embedding(table, tokens, vectors)
Status embedding(const TensorView& table, const TensorView& indices, const TensorView& output);

enum class BagMode { kSum, kMean };

// output[b] = the sum or mean of table[indices[i]] for offsets[b] <= i < offsets[b + 1] (the last bag goes to the end);
// an empty bag gives zeros. indices: int64 or int32 [I]; offsets: the same dtype [B], rising from 0; output: [B, D].
// Sums are taken in f32 in the order of the indices and rounded once. Thread-safe; the same bits for any number of
// threads.
Status embedding_bag(const TensorView& table, const TensorView& indices, const TensorView& offsets, BagMode mode,
                     const TensorView& output);

}  // namespace qx::kernels
