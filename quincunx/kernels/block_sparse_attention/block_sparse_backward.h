// The gradients of block_sparse_attention().
#pragma once

#include <optional>

#include "quincunx/base/status.h"
#include "quincunx/kernels/block_sparse_attention/block_sparse_attention.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Arguments and result of the forward call; its log_sum_exp stands in the options.
struct BlockSparseForward {
  TensorView query, key, value, output;
};

struct BlockSparseGradients {
  TensorView output;                                     // as output, any strides
  std::optional<TensorView> log_sum_exp = std::nullopt;  // as log_sum_exp; absent: zeros
};

// query, key, value: where their gradients are written, of the same shapes, any strides. Keys that nobody sees get
// zeros. f32; a key head and the query heads that share it are one task, so that the same bits come out for any number
// of threads. Memory a thread: packed copies and gradients of one key head. Thread-safe.
struct BlockSparseInputGradients {
  TensorView query, key, value;
};
Status block_sparse_attention_backward(const BlockSparseForward& forward, const BlockSparseOptions& options,
                                       const BlockSparseGradients& gradients, const BlockSparseInputGradients& result);

}  // namespace qx::kernels
