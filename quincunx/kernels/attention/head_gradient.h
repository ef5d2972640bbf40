// The gradients of one key head, gathered from blocks of queries one after another: what the backward passes of dense
// and of block-sparse attention share.
#pragma once

#include <hwy/aligned_allocator.h>

#include <functional>
#include <span>
#include <vector>

#include "quincunx/kernels/attention/attention_backward.h"
#include "quincunx/kernels/attention/attention_backward_kernel.h"
#include "quincunx/kernels/attention/attention_kernel.h"

namespace qx::kernels {

// Numbers of queries, taken in the order of an index where there is one.
struct StridedScalars {
  const float* data = nullptr;  // null: zeros
  int64_t stride = 0;
  const int64_t* order = nullptr;

  float at(int64_t row) const { return data == nullptr ? 0.0f : data[(order == nullptr ? row : order[row]) * stride]; }
};

// A block of queries of one head, as AttentionBlock has it; row 0 is the first query.
struct GradientBlock {
  StridedRows query, output, output_grad, query_grad;
  StridedScalars log_sum_exp, log_sum_exp_grad;
  int64_t num_rows = 0;  // at most kAttentionQueryBlock
  std::span<const KeySpan> spans;
  bool causal = false;
  int64_t causal_limit = 0;
  float scale = 1;
  MaskRows mask;
};

// One thread's memory. Of each key head: clear(), add_keys() for the keys that the spans name, differentiate() for
// every block of queries, and write_keys().
class HeadGradient {
 public:
  HeadGradient(int64_t packed_rows, int64_t head_dim, int64_t value_dim);
  bool has_memory() const { return memory_ != nullptr; }

  void clear();
  void add_keys(const StridedRows& keys, const StridedRows& values, int64_t count, int64_t packed);
  // Writes the gradients of the queries.
  void differentiate(const GradientBlock& block);
  void write_keys(int64_t packed, int64_t count, const StridedRows& key_grad, const StridedRows& value_grad) const;

 private:
  void weigh_rows(const GradientBlock& block);
  void differentiate_span(const GradientBlock& block, const KeySpan& span);

  int64_t packed_rows_, head_dim_, value_dim_, padded_head_dim_, padded_value_dim_;
  // Of the key head, [packed rows] long: keys and values as panels of scores, keys as panels of rows, gradients.
  float *keys_, *values_, *key_rows_, *key_grads_, *value_grads_;
  // Of the block of queries.
  float *query_, *output_grad_, *query_panels_, *output_grad_panels_, *query_grad_, *weights_, *weight_grads_, *bias_;
  std::vector<WeightRow> rows_;
  hwy::AlignedFreeUniquePtr<float[]> memory_;
};

// Runs work(head, gradient) for each of `num_heads` key heads, each thread with a HeadGradient of its own; names `key`
// where there is no memory for one.
Status for_each_head_gradient(int64_t num_heads, int64_t packed_rows, const AttentionForward& forward,
                              const std::function<void(int64_t, HeadGradient&)>& work);

// What a backward pass demands beside the arguments of its forward pass.
Status check_attention_gradients(const AttentionForward& forward, const std::optional<TensorView>& log_sum_exp,
                                 const AttentionGradients& gradients, const AttentionInputGradients& result);
void fill_attention_gradients_with_zeros(const AttentionInputGradients& result);

}  // namespace qx::kernels
