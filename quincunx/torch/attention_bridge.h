// What the operators of attention share.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "quincunx/kernels/attention/attention_backward.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {

struct AttentionResults {
  torch::stable::Tensor output;
  torch::stable::Tensor log_sum_exp;
};

inline void check_num_dims(std::string_view name, const torch::stable::Tensor& tensor, int64_t count) {
  if (tensor.dim() == count) return;
  throw_if_error(invalid_argument(std::string(name) + ": expected " + std::to_string(count) + " dimensions, got " +
                                  kernel_float_view(name, tensor).to_string()));
}

// Memory for the output, of the dtype of query, and the log-sum-exp, float32: [B, H, S_q, D_v] and [B, H, S_q]. The
// output keeps the memory order of query where the head sizes agree, so that [B, S, H, D] projections come back as
// such.
inline AttentionResults new_attention_results(const torch::stable::Tensor& query, const torch::stable::Tensor& value,
                                              std::string_view value_name = "value") {
  check_num_dims("query", query, 4);
  check_num_dims(value_name, value, 4);
  const std::vector<int64_t> output_shape{query.size(0), query.size(1), query.size(2), value.size(3)};
  const std::vector<int64_t> lse_shape{query.size(0), query.size(1), query.size(2)};
  return {
      query.size(3) == value.size(3) ? torch::stable::empty_like(query) : torch::stable::new_empty(query, output_shape),
      torch::stable::new_empty(query, lse_shape, torch::headeronly::ScalarType::Float)};
}

// Gradients of query, key and value, as tensors and as the kernels write them.
struct AttentionGradientTensors {
  torch::stable::Tensor query, key, value;

  AttentionGradientTensors(const torch::stable::Tensor& q, const torch::stable::Tensor& k,
                           const torch::stable::Tensor& v)
      : query(torch::stable::new_empty(q, q.sizes())),
        key(torch::stable::new_empty(k, k.sizes())),
        value(torch::stable::new_empty(v, v.sizes())) {}

  kernels::AttentionInputGradients views() const {
    return {kernel_float_view("query_grad", query), kernel_float_view("key_grad", key),
            kernel_float_view("value_grad", value)};
  }
  std::tuple<torch::stable::Tensor, torch::stable::Tensor, torch::stable::Tensor> tensors() const {
    return {query, key, value};
  }
};

inline kernels::AttentionForward attention_forward(const torch::stable::Tensor& query, const torch::stable::Tensor& key,
                                                   const torch::stable::Tensor& value,
                                                   const torch::stable::Tensor& output) {
  return {kernel_float_view("query", query), kernel_float_view("key", key), kernel_float_view("value", value),
          kernel_float_view("output", output)};
}

inline kernels::AttentionGradients attention_gradients(const torch::stable::Tensor& output_grad,
                                                       const std::optional<torch::stable::Tensor>& log_sum_exp_grad) {
  kernels::AttentionGradients gradients{kernel_float_view("output_grad", output_grad)};
  if (log_sum_exp_grad.has_value()) gradients.log_sum_exp = float32_view("log_sum_exp_grad", *log_sum_exp_grad);
  return gradients;
}

inline std::optional<float> narrowed(std::optional<double> value) {
  return value.has_value() ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

// The numbers of an int32 or int64 vector.
inline std::vector<int64_t> indices(std::string_view name, const torch::stable::Tensor& tensor) {
  const TensorView view = index_view(name, tensor);
  if (view.num_dims() != 1) {
    throw_if_error(invalid_argument(std::string(name) + ": expected a vector, got " + view.to_string()));
  }
  std::vector<int64_t> result;
  for (int64_t i = 0; i < view.size(0); ++i) {
    const int64_t at = i * view.stride(0);
    result.push_back(view.dtype() == DType::kInt32 ? view.data_as<int32_t>()[at] : view.data_as<int64_t>()[at]);
  }
  return result;
}

}  // namespace qx::torch_bridge
