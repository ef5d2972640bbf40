#include "quincunx/kernels/attention/attention_backward.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quincunx/kernels/attention/attention_arguments.h"
#include "quincunx/kernels/attention/head_gradient.h"
#include "quincunx/kernels/attention/sequences.h"

namespace qx::kernels {
namespace {

// One call, its arguments checked.
class Backward {
 public:
  Backward(const AttentionForward& forward, const AttentionOptions& options, const AttentionGradients& gradients,
           const AttentionInputGradients& result, const std::vector<Sequence>& sequences)
      : forward_(forward),
        options_(options),
        gradients_(gradients),
        result_(result),
        sequences_(sequences),
        scale_(options.scale.value_or(1 / std::sqrt(static_cast<float>(forward.query.size(3))))) {}

  Status run() const {
    int64_t most_keys = 0;
    for (const Sequence& s : sequences_) most_keys = std::max(most_keys, s.num_keys);
    const int64_t key_heads = forward_.key.size(1);
    return for_each_head_gradient(static_cast<int64_t>(sequences_.size()) * key_heads, round_up_to_panel(most_keys),
                                  forward_, [&](int64_t task, HeadGradient& gradient) {
                                    differentiate(sequences_[static_cast<size_t>(task / key_heads)], task % key_heads,
                                                  gradient);
                                  });
  }

 private:
  void differentiate(const Sequence& s, int64_t key_head, HeadGradient& gradient) const {
    const auto keys_of = [&](const TensorView& view, int64_t first) {
      return head_rows(view, s.batch, key_head, s.first_key + first);
    };
    gradient.clear();
    gradient.add_keys(keys_of(forward_.key, 0), keys_of(forward_.value, 0), s.num_keys, 0);
    const KeySpan all_keys[] = {{.count = s.num_keys}};
    const int64_t group = forward_.query.size(1) / forward_.key.size(1);
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      for (int64_t row = 0; row < s.num_queries; row += kAttentionQueryBlock) {
        GradientBlock block = block_of(s, head, row);
        block.spans = all_keys;
        gradient.differentiate(block);
      }
    }
    gradient.write_keys(0, s.num_keys, keys_of(result_.key, 0), keys_of(result_.value, 0));
    fill_padding(s, keys_of(result_.key, s.num_keys), keys_of(result_.value, s.num_keys));
  }

  void fill_padding(const Sequence& s, const StridedRows& key_grad, const StridedRows& value_grad) const {
    const std::vector<float> zeros(static_cast<size_t>(kMaxAttentionHeadDim));
    for (int64_t i = 0; i < s.num_padding; ++i) {
      key_grad.store(zeros.data(), forward_.key.size(3), i);
      value_grad.store(zeros.data(), forward_.value.size(3), i);
    }
  }

  StridedScalars scalars(const TensorView& view, const Sequence& s, int64_t head, int64_t row) const {
    return {view.data_as<float>() + s.batch * view.stride(0) + head * view.stride(1) +
                (s.first_query + row) * view.stride(2),
            view.stride(2)};
  }

  GradientBlock block_of(const Sequence& s, int64_t head, int64_t row) const {
    const auto rows = [&](const TensorView& view) { return head_rows(view, s.batch, head, s.first_query + row); };
    GradientBlock block;
    block.query = rows(forward_.query);
    block.output = rows(forward_.output);
    block.output_grad = rows(gradients_.output);
    block.query_grad = rows(result_.query);
    block.log_sum_exp = scalars(*options_.log_sum_exp, s, head, row);
    if (gradients_.log_sum_exp) block.log_sum_exp_grad = scalars(*gradients_.log_sum_exp, s, head, row);
    block.num_rows = std::min(kAttentionQueryBlock, s.num_queries - row);
    block.causal = options_.causal;
    block.causal_limit = s.causal_limit(row);
    block.scale = scale_;
    if (options_.attn_mask) block.mask = mask_rows(*options_.attn_mask, s.batch, head, row);
    return block;
  }

  const AttentionForward& forward_;
  const AttentionOptions& options_;
  const AttentionGradients& gradients_;
  const AttentionInputGradients& result_;
  const std::vector<Sequence>& sequences_;
  float scale_;
};

}  // namespace

Status attention_backward(const AttentionForward& forward, const AttentionOptions& options,
                          const AttentionGradients& gradients, const AttentionInputGradients& result) {
  QX_RETURN_IF_ERROR(check_attention_arguments(forward.query, forward.key, forward.value, options, forward.output));
  QX_RETURN_IF_ERROR(check_attention_gradients(forward, options.log_sum_exp, gradients, result));
  if (forward.output.num_elements() == 0) {
    fill_attention_gradients_with_zeros(result);
    return ok_status();
  }
  return Backward(forward, options, gradients, result,
                  sequences_of_batch(forward.query, forward.key, options.key_lengths))
      .run();
}

Status variable_length_attention_backward(const AttentionForward& forward, const VariableLengthOptions& options,
                                          const AttentionGradients& gradients, const AttentionInputGradients& result) {
  QX_ASSIGN_OR_RETURN(const AttentionOptions inner, packed_attention_options(options));
  QX_RETURN_IF_ERROR(check_attention_dtypes(forward.query, forward.key, forward.value, forward.output, 3));
  QX_RETURN_IF_ERROR(check_attention_gradients(forward, options.log_sum_exp, gradients, result));
  const AttentionForward by_head{by_heads(forward.query), by_heads(forward.key), by_heads(forward.value),
                                 by_heads(forward.output)};
  AttentionGradients head_gradients{by_heads(gradients.output)};
  if (gradients.log_sum_exp) head_gradients.log_sum_exp = with_one_batch_item(*gradients.log_sum_exp);
  const AttentionInputGradients head_result{by_heads(result.query), by_heads(result.key), by_heads(result.value)};
  QX_RETURN_IF_ERROR(check_attention_arguments(by_head.query, by_head.key, by_head.value, inner, by_head.output));
  QX_RETURN_IF_ERROR(check_sequence_starts(options.query_starts, options.key_starts, by_head.query, by_head.key));
  if (forward.output.num_elements() == 0) {
    fill_attention_gradients_with_zeros(head_result);
    return ok_status();
  }
  return Backward(by_head, inner, head_gradients, head_result,
                  sequences_of_starts(options.query_starts, options.key_starts))
      .run();
}

}  // namespace qx::kernels
