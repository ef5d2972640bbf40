// torch.ops.quincunx.attention and variable_length_attention, with their backward operators
#include "quincunx/kernels/attention/attention.h"

#include <torch/csrc/stable/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "quincunx/torch/attention_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

// The second result is the log of the sum of the exponentials, [B, H, S_q].
std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                     std::optional<double> scale, bool causal, const std::vector<int64_t>& key_lengths,
                                     std::optional<Tensor> attn_mask) {
  auto [output, lse] = new_attention_results(query, value);
  kernels::AttentionOptions options;
  options.scale = narrowed(scale);
  options.causal = causal;
  options.key_lengths = key_lengths;
  if (attn_mask.has_value()) options.attn_mask = mask_view("attn_mask", *attn_mask);
  options.log_sum_exp = float32_view("log_sum_exp", lse);
  throw_if_error(kernels::attention(kernel_float_view("query", query), kernel_float_view("key", key),
                                    kernel_float_view("value", value), options, kernel_float_view("output", output)));
  return {output, lse};
}

// Sequences packed one after another: output [S_q, H, D_v], log-sum-exp [H, S_q].
std::tuple<Tensor, Tensor> variable_length_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                                     const Tensor& query_starts, const Tensor& key_starts,
                                                     std::optional<double> scale, bool causal) {
  check_num_dims("query", query, 3);
  check_num_dims("value", value, 3);
  Tensor output = torch::stable::new_empty(query, {query.size(0), query.size(1), value.size(2)});
  Tensor lse = torch::stable::new_empty(query, {query.size(1), query.size(0)}, torch::headeronly::ScalarType::Float);
  const std::vector<int64_t> q_starts = indices("query_starts", query_starts),
                             k_starts = indices("key_starts", key_starts);
  const kernels::VariableLengthOptions options{.scale = narrowed(scale),
                                               .causal = causal,
                                               .query_starts = q_starts,
                                               .key_starts = k_starts,
                                               .log_sum_exp = float32_view("log_sum_exp", lse)};
  throw_if_error(kernels::variable_length_attention(kernel_float_view("query", query), kernel_float_view("key", key),
                                                    kernel_float_view("value", value), options,
                                                    kernel_float_view("output", output)));
  return {output, lse};
}

// Gradients of query, key and value.
std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& output_grad, std::optional<Tensor> log_sum_exp_grad,
                                                      const Tensor& query, const Tensor& key, const Tensor& value,
                                                      const Tensor& output, const Tensor& log_sum_exp,
                                                      std::optional<double> scale, bool causal,
                                                      const std::vector<int64_t>& key_lengths,
                                                      std::optional<Tensor> attn_mask) {
  kernels::AttentionOptions options;
  options.scale = narrowed(scale);
  options.causal = causal;
  options.key_lengths = key_lengths;
  if (attn_mask.has_value()) options.attn_mask = mask_view("attn_mask", *attn_mask);
  options.log_sum_exp = float32_view("log_sum_exp", log_sum_exp);
  const AttentionGradientTensors result(query, key, value);
  throw_if_error(kernels::attention_backward(attention_forward(query, key, value, output), options,
                                             attention_gradients(output_grad, log_sum_exp_grad), result.views()));
  return result.tensors();
}

std::tuple<Tensor, Tensor, Tensor> variable_length_attention_backward(
    const Tensor& output_grad, std::optional<Tensor> log_sum_exp_grad, const Tensor& query, const Tensor& key,
    const Tensor& value, const Tensor& output, const Tensor& log_sum_exp, const Tensor& query_starts,
    const Tensor& key_starts, std::optional<double> scale, bool causal) {
  const std::vector<int64_t> q_starts = indices("query_starts", query_starts),
                             k_starts = indices("key_starts", key_starts);
  const kernels::VariableLengthOptions options{.scale = narrowed(scale),
                                               .causal = causal,
                                               .query_starts = q_starts,
                                               .key_starts = k_starts,
                                               .log_sum_exp = float32_view("log_sum_exp", log_sum_exp)};
  const AttentionGradientTensors result(query, key, value);
  throw_if_error(kernels::variable_length_attention_backward(attention_forward(query, key, value, output), options,
                                                             attention_gradients(output_grad, log_sum_exp_grad),
                                                             result.views()));
  return result.tensors();
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def(
      "attention(Tensor query, Tensor key, Tensor value, float? scale=None, bool causal=False, int[] key_lengths=[], "
      "Tensor? attn_mask=None) -> (Tensor output, Tensor log_sum_exp)");
  library.def(
      "variable_length_attention(Tensor query, Tensor key, Tensor value, Tensor query_starts, Tensor key_starts, "
      "float? scale=None, bool causal=False) -> (Tensor output, Tensor log_sum_exp)");
  library.def(
      "attention_backward(Tensor output_grad, Tensor? log_sum_exp_grad, Tensor query, Tensor key, Tensor value, "
      "Tensor output, Tensor log_sum_exp, float? scale, bool causal, int[] key_lengths, Tensor? attn_mask) "
      "-> (Tensor query_grad, Tensor key_grad, Tensor value_grad)");
  library.def(
      "variable_length_attention_backward(Tensor output_grad, Tensor? log_sum_exp_grad, Tensor query, Tensor key, "
      "Tensor value, Tensor output, Tensor log_sum_exp, Tensor query_starts, Tensor key_starts, float? scale, "
      "bool causal) -> (Tensor query_grad, Tensor key_grad, Tensor value_grad)");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("attention", TORCH_BOX(&qx::torch_bridge::attention));
  library.impl("variable_length_attention", TORCH_BOX(&qx::torch_bridge::variable_length_attention));
  library.impl("attention_backward", TORCH_BOX(&qx::torch_bridge::attention_backward));
  library.impl("variable_length_attention_backward", TORCH_BOX(&qx::torch_bridge::variable_length_attention_backward));
}
