// The gradients of attention() and variable_length_attention().
#pragma once

#include <optional>

#include "quincunx/base/status.h"
#include "quincunx/kernels/attention/attention.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Arguments and result of the forward call; its log_sum_exp stands in the options.
struct AttentionForward {
  TensorView query, key, value, output;
};

struct AttentionGradients {
  TensorView output;                                     // as output, any strides
  std::optional<TensorView> log_sum_exp = std::nullopt;  // as log_sum_exp; absent: zeros
};

// query, key, value: where their gradients are written, of the same shapes and dtype, any strides.
struct AttentionInputGradients {
  TensorView query, key, value;
};

// Keys that nobody sees get zeros; there is no gradient of the mask. Computed in f32; a key head of a sequence and the
// query heads that share it are one task, so that the same bits come out for any number of threads. Memory a thread:
// packed copies and gradients of one key head. Thread-safe.
//   attention_backward({q, k, v, out}, {.causal = true, .log_sum_exp = lse}, {out_grad}, {q_grad, k_grad, v_grad})
Status attention_backward(const AttentionForward& forward, const AttentionOptions& options,
                          const AttentionGradients& gradients, const AttentionInputGradients& result);
Status variable_length_attention_backward(const AttentionForward& forward, const VariableLengthOptions& options,
                                          const AttentionGradients& gradients, const AttentionInputGradients& result);

}  // namespace qx::kernels
