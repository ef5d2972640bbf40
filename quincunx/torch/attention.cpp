// torch.ops.quincunx.attention
#include "quincunx/kernels/attention/attention.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <optional>
#include <tuple>
#include <vector>

#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

// The output keeps the memory order of query where the head sizes agree, so that [B, S, H, D] projections come back as
// such. The second result is the log of the sum of the exponentials, [B, H, S_q].
std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                     std::optional<double> scale, bool causal, const std::vector<int64_t>& key_lengths,
                                     std::optional<Tensor> attn_mask) {
  const TensorView q = float32_view("query", query), k = float32_view("key", key), v = float32_view("value", value);
  if (q.num_dims() != 4) throw_if_error(invalid_argument("query: expected 4 dimensions, got " + q.to_string()));
  if (v.num_dims() != 4) throw_if_error(invalid_argument("value: expected 4 dimensions, got " + v.to_string()));
  const std::vector<int64_t> output_shape{q.size(0), q.size(1), q.size(2), v.size(3)};
  const std::vector<int64_t> lse_shape{q.size(0), q.size(1), q.size(2)};
  Tensor output =
      q.size(3) == v.size(3) ? torch::stable::empty_like(query) : torch::stable::new_empty(query, output_shape);
  Tensor lse = torch::stable::new_empty(query, lse_shape);
  kernels::AttentionOptions options;
  if (scale.has_value()) options.scale = static_cast<float>(*scale);
  options.causal = causal;
  options.key_lengths = key_lengths;
  if (attn_mask.has_value()) options.attn_mask = mask_view("attn_mask", *attn_mask);
  options.log_sum_exp = float32_view("log_sum_exp", lse);
  throw_if_error(kernels::attention(q, k, v, options, float32_view("output", output)));
  return {output, lse};
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def(
      "attention(Tensor query, Tensor key, Tensor value, float? scale=None, bool causal=False, int[] key_lengths=[], "
      "Tensor? attn_mask=None) -> (Tensor output, Tensor log_sum_exp)");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("attention", TORCH_BOX(&qx::torch_bridge::attention));
}
