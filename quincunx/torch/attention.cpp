// torch.ops.quincunx.attention
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
  throw_if_error(kernels::attention(float32_view("query", query), float32_view("key", key),
                                    float32_view("value", value), options, float32_view("output", output)));
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
