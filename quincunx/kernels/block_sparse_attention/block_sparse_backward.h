// The gradients of block_sparse_attention().
#pragma once

#include "quincunx/base/status.h"
#include "quincunx/kernels/attention/attention_backward.h"
#include "quincunx/kernels/block_sparse_attention/block_sparse_attention.h"

namespace qx::kernels {

using BlockSparseForward = AttentionForward;
using BlockSparseGradients = AttentionGradients;
using BlockSparseInputGradients = AttentionInputGradients;

// As attention_backward(), of the same lists as the forward pass. Only key blocks that some list names are read. The
// same bits for any number of threads. Thread-safe.
Status block_sparse_attention_backward(const BlockSparseForward& forward, const BlockSparseOptions& options,
                                       const BlockSparseGradients& gradients, const BlockSparseInputGradients& result);

}  // namespace qx::kernels
