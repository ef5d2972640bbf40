#include "quincunx/kernels/attention/head_gradient.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <numbers>
#include <string>
#include <utility>

#include "quincunx/kernels/attention/attention_arguments.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// A key block and a panel: rows a power of two apart would share L1 sets.
constexpr int64_t kWeightStride = kAttentionKeyBlock + kAttentionPanel;

void copy_rows(const StridedRows& source, int64_t count, int64_t width, float* out) {
  for (int64_t row = 0; row < count; ++row) {
    load_row_as_f32(source.dtype, source.row(row), source.column_stride, width, out + row * width);
  }
}

void write_rows(const float* source, int64_t stride, int64_t count, int64_t width, const StridedRows& out) {
  for (int64_t row = 0; row < count; ++row) out.store(source + row * stride, width, row);
}

void fill_zeros(const TensorView& view) {
  if (view.num_elements() == 0) return;
  const std::vector<float> zeros(static_cast<size_t>(view.size(3)));
  for (int64_t head = 0; head < view.size(0) * view.size(1); ++head) {
    const StridedRows rows = head_rows(view, head / view.size(1), head % view.size(1));
    for (int64_t row = 0; row < view.size(2); ++row) rows.store(zeros.data(), view.size(3), row);
  }
}

}  // namespace

HeadGradient::HeadGradient(int64_t packed_rows, int64_t head_dim, int64_t value_dim)
    : packed_rows_(packed_rows),
      head_dim_(head_dim),
      value_dim_(value_dim),
      padded_head_dim_(round_up_to_panel(head_dim)),
      padded_value_dim_(round_up_to_panel(value_dim)) {
  const int64_t d = padded_head_dim_, dv = padded_value_dim_;
  const std::pair<float**, int64_t> parts[] = {{&keys_, packed_rows * d},
                                               {&values_, packed_rows * dv},
                                               {&key_rows_, packed_rows * d},
                                               {&key_grads_, packed_rows * d},
                                               {&value_grads_, packed_rows * dv},
                                               {&query_, kAttentionQueryBlock * d},
                                               {&output_grad_, kAttentionQueryBlock * dv},
                                               {&query_panels_, kAttentionQueryBlock * d},
                                               {&output_grad_panels_, kAttentionQueryBlock * dv},
                                               {&query_grad_, kAttentionQueryBlock * d},
                                               {&weights_, kAttentionQueryBlock * kWeightStride},
                                               {&weight_grads_, kAttentionQueryBlock * kWeightStride},
                                               {&bias_, kWeightStride}};
  int64_t total = 0;
  for (const auto& part : parts) total += part.second;
  memory_ = hwy::AllocateAligned<float>(static_cast<size_t>(total));
  float* next = memory_.get();
  for (const auto& part : parts) {
    *part.first = next;
    if (next != nullptr) next += part.second;
  }
}

void HeadGradient::clear() {
  std::fill_n(key_grads_, packed_rows_ * padded_head_dim_, 0.0f);
  std::fill_n(value_grads_, packed_rows_ * padded_value_dim_, 0.0f);
}

void HeadGradient::add_keys(const StridedRows& keys, const StridedRows& values, int64_t count, int64_t packed) {
  pack_attention_keys(keys, head_dim_, count, packed, keys_);
  pack_attention_values(keys, head_dim_, count, packed, packed_rows_, key_rows_);
  pack_attention_keys(values, value_dim_, count, packed, values_);
}

void HeadGradient::write_keys(int64_t packed, int64_t count, const StridedRows& key_grad,
                              const StridedRows& value_grad) const {
  write_rows(key_grads_ + packed * padded_head_dim_, padded_head_dim_, count, head_dim_, key_grad);
  write_rows(value_grads_ + packed * padded_value_dim_, padded_value_dim_, count, value_dim_, value_grad);
}

void HeadGradient::differentiate(const GradientBlock& block) {
  copy_rows(block.query, block.num_rows, head_dim_, query_);
  copy_rows(block.output_grad, block.num_rows, value_dim_, output_grad_);
  pack_attention_values(block.query, head_dim_, block.num_rows, 0, kAttentionQueryBlock, query_panels_);
  pack_attention_values(block.output_grad, value_dim_, block.num_rows, 0, kAttentionQueryBlock, output_grad_panels_);
  std::fill_n(query_grad_, block.num_rows * padded_head_dim_, 0.0f);
  weigh_rows(block);
  for (const KeySpan& span : block.spans) {
    const int64_t visible =
        block.causal ? std::clamp<int64_t>(block.causal_limit + block.num_rows - 1 - span.first, 0, span.count)
                     : span.count;
    for (int64_t key = 0; key < visible; key += kAttentionKeyBlock) {
      const KeySpan part{span.packed + key, span.first + key, std::min(kAttentionKeyBlock, span.count - key)};
      if (block.mask.is_present() && !sees_any(block.mask, block.num_rows, part.first, part.count)) continue;
      differentiate_span(block, part);
    }
  }
  write_rows(query_grad_, padded_head_dim_, block.num_rows, head_dim_, block.query_grad);
}

// delta = output gradient . output - gradient of the log-sum-exp: what softmax subtracts from a weight's gradient.
void HeadGradient::weigh_rows(const GradientBlock& block) {
  rows_.assign(static_cast<size_t>(block.num_rows), WeightRow{});
  float buffer[kMaxAttentionHeadDim];
  for (int64_t r = 0; r < block.num_rows; ++r) {
    const float* output = block.output.load(r, value_dim_, buffer);
    double delta = 0;
    for (int64_t i = 0; i < value_dim_; ++i) {
      delta += static_cast<double>(output[i]) * output_grad_[r * value_dim_ + i];
    }
    WeightRow& row = rows_[static_cast<size_t>(r)];
    row.scores = weights_ + r * kWeightStride;
    row.weight_grads = weight_grads_ + r * kWeightStride;
    row.scale = block.scale;
    row.log2_sum = block.log_sum_exp.at(r) * std::numbers::log2e_v<float>;
    row.delta = static_cast<float>(delta - block.log_sum_exp_grad.at(r));
  }
}

void HeadGradient::differentiate_span(const GradientBlock& block, const KeySpan& span) {
  store_product({query_, head_dim_, 1, block.num_rows, head_dim_, keys_ + span.packed * head_dim_, head_dim_,
                 span.count, weights_, kWeightStride});
  store_product({output_grad_, value_dim_, 1, block.num_rows, value_dim_, values_ + span.packed * value_dim_,
                 value_dim_, span.count, weight_grads_, kWeightStride});
  for (int64_t r = 0; r < block.num_rows; ++r) {
    WeightRow& row = rows_[static_cast<size_t>(r)];
    row.end = span.count;
    row.count = block.causal ? std::clamp<int64_t>(block.causal_limit + r - span.first, 0, span.count) : span.count;
    // Only scores of -inf: nothing depends on this row.
    if (row.log2_sum == -std::numeric_limits<float>::infinity()) row.count = 0;
    if (block.mask.is_present()) {
      fill_mask_row(block.mask, r, span.first, row.count, bias_);
      row.bias = bias_;
    }
    differentiate_weights(row);
  }
  accumulate_product({weight_grads_, kWeightStride, 1, block.num_rows, span.count,
                      key_rows_ + span.packed * kAttentionPanel, packed_rows_, head_dim_, query_grad_,
                      padded_head_dim_});
  // The transposed weights, read by columns.
  accumulate_product({weights_, 1, kWeightStride, span.count, block.num_rows, output_grad_panels_, kAttentionQueryBlock,
                      value_dim_, value_grads_ + span.packed * padded_value_dim_, padded_value_dim_});
  accumulate_product({weight_grads_, 1, kWeightStride, span.count, block.num_rows, query_panels_, kAttentionQueryBlock,
                      head_dim_, key_grads_ + span.packed * padded_head_dim_, padded_head_dim_});
}

Status for_each_head_gradient(int64_t num_heads, int64_t packed_rows, const AttentionForward& forward,
                              const std::function<void(int64_t, HeadGradient&)>& work) {
  std::atomic<bool> has_memory = true;
  parallel_for(0, num_heads, 1, [&](int64_t begin, int64_t end) {
    HeadGradient gradient(packed_rows, forward.query.size(3), forward.value.size(3));
    if (!gradient.has_memory()) {
      has_memory = false;
      return;
    }
    for (int64_t head = begin; head < end; ++head) work(head, gradient);
  });
  if (has_memory) return ok_status();
  return resource_exhausted("key: no memory for the packed copy and gradients of a head of key " +
                            forward.key.to_string());
}

Status check_attention_gradients(const AttentionForward& forward, const std::optional<TensorView>& log_sum_exp,
                                 const AttentionGradients& gradients, const AttentionInputGradients& result) {
  if (!log_sum_exp) return invalid_argument("log_sum_exp: expected that of the forward pass, got none");
  const auto check_like = [](std::string_view name, const TensorView& view, std::string_view other_name,
                             const TensorView& other) {
    QX_RETURN_IF_ERROR(check_kernel_float(name, view));
    QX_RETURN_IF_ERROR(check_same_dtype(name, view, other_name, other));
    return check_same_shape(name, view, other_name, other);
  };
  QX_RETURN_IF_ERROR(check_like("output_grad", gradients.output, "output", forward.output));
  if (gradients.log_sum_exp) {
    QX_RETURN_IF_ERROR(check_like("log_sum_exp_grad", *gradients.log_sum_exp, "log_sum_exp", *log_sum_exp));
  }
  QX_RETURN_IF_ERROR(check_like("query_grad", result.query, "query", forward.query));
  QX_RETURN_IF_ERROR(check_like("key_grad", result.key, "key", forward.key));
  QX_RETURN_IF_ERROR(check_like("value_grad", result.value, "value", forward.value));
  QX_RETURN_IF_ERROR(check_output("query_grad", result.query, {}));
  QX_RETURN_IF_ERROR(check_output("key_grad", result.key, {}));
  return check_output("value_grad", result.value, {});
}

void fill_attention_gradients_with_zeros(const AttentionInputGradients& result) {
  fill_zeros(result.query);
  fill_zeros(result.key);
  fill_zeros(result.value);
}

}  // namespace qx::kernels
