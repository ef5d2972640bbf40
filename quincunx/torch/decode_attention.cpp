// torch.ops.quincunx.decode_attention and paged_decode_attention
#include "quincunx/kernels/attention/decode_attention.h"

#include <torch/csrc/stable/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "quincunx/torch/attention_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

// (output [B, H, L, D_v], log_sum_exp [B, H, L]).
std::tuple<Tensor, Tensor> decode_attention(const Tensor& query, const Tensor& keys, const Tensor& values,
                                            std::optional<Tensor> key_lengths, std::optional<double> scale) {
  auto [output, lse] = new_attention_results(query, values, "values");
  std::vector<int64_t> lengths;
  if (key_lengths.has_value()) lengths = indices("key_lengths", *key_lengths);
  kernels::DecodeAttentionOptions options;
  options.scale = narrowed(scale);
  options.key_lengths = lengths;
  options.log_sum_exp = float32_view("log_sum_exp", lse);
  throw_if_error(kernels::decode_attention(kernel_float_view("query", query), kernel_float_view("keys", keys),
                                           kernel_float_view("values", values), options,
                                           kernel_float_view("output", output)));
  return {output, lse};
}

std::tuple<Tensor, Tensor> paged_decode_attention(const Tensor& query, const Tensor& keys, const Tensor& values,
                                                  const Tensor& block_table, const Tensor& key_lengths,
                                                  std::optional<double> scale) {
  auto [output, lse] = new_attention_results(query, values, "values");
  const std::vector<int64_t> lengths = indices("key_lengths", key_lengths);
  kernels::DecodeAttentionOptions options;
  options.scale = narrowed(scale);
  options.key_lengths = lengths;
  options.log_sum_exp = float32_view("log_sum_exp", lse);
  const kernels::PagedCache cache{kernel_float_view("keys", keys), kernel_float_view("values", values),
                                  index_view("block_table", block_table)};
  throw_if_error(kernels::paged_decode_attention(kernel_float_view("query", query), cache, options,
                                                 kernel_float_view("output", output)));
  return {output, lse};
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def(
      "decode_attention(Tensor query, Tensor keys, Tensor values, Tensor? key_lengths=None, float? scale=None) "
      "-> (Tensor output, Tensor log_sum_exp)");
  library.def(
      "paged_decode_attention(Tensor query, Tensor keys, Tensor values, Tensor block_table, Tensor key_lengths, "
      "float? scale=None) -> (Tensor output, Tensor log_sum_exp)");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("decode_attention", TORCH_BOX(&qx::torch_bridge::decode_attention));
  library.impl("paged_decode_attention", TORCH_BOX(&qx::torch_bridge::paged_decode_attention));
}
