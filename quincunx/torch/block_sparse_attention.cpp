// torch.ops.quincunx.block_sparse_attention, tile_order, select_blocks and top_k_blocks
#include "quincunx/kernels/block_sparse_attention/block_sparse_attention.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "quincunx/kernels/block_sparse_attention/block_selection.h"
#include "quincunx/kernels/block_sparse_attention/block_sparse_backward.h"
#include "quincunx/kernels/block_sparse_attention/tile_order.h"
#include "quincunx/torch/attention_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

TensorView int64_view(std::string_view name, const Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.scalar_type() != ScalarType::Long) {
    throw_if_error(type_error(std::string(name) + ": expected an int64 tensor on the CPU"));
  }
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  return value_or_throw(TensorView::strided(tensor.mutable_data_ptr(), DType::kInt64,
                                            std::span(sizes.data(), sizes.size()),
                                            std::span(strides.data(), strides.size())));
}

// The numbers of a contiguous int64 vector.
std::span<const int64_t> numbers(std::string_view name, const Tensor& tensor) {
  const TensorView view = int64_view(name, tensor);
  if (view.num_dims() != 1 || !view.is_contiguous()) {
    throw_if_error(invalid_argument(std::string(name) + ": expected a contiguous vector, got " + view.to_string()));
  }
  return {view.data_as<int64_t>(), static_cast<size_t>(view.size(0))};
}

// The arguments that the forward and the backward pass share. It borrows from all of them.
kernels::BlockSparseOptions options_of(const Tensor& select_idx, const Tensor& select_num_idx,
                                       const Tensor& query_starts, const Tensor& key_starts,
                                       const std::optional<Tensor>& order, std::optional<double> scale, bool causal,
                                       const std::vector<int64_t>& key_lengths, const std::optional<Tensor>& attn_mask,
                                       const Tensor& log_sum_exp) {
  kernels::BlockSparseOptions options;
  options.attention.scale = narrowed(scale);
  options.attention.causal = causal;
  options.attention.key_lengths = key_lengths;
  if (attn_mask.has_value()) options.attention.attn_mask = mask_view("attn_mask", *attn_mask);
  options.attention.log_sum_exp = float32_view("log_sum_exp", log_sum_exp);
  options.query_starts = numbers("query_starts", query_starts);
  options.key_starts = numbers("key_starts", key_starts);
  options.select_idx = int64_view("select_idx", select_idx);
  options.select_num_idx = int64_view("select_num_idx", select_num_idx);
  if (order.has_value()) options.query_order = options.key_order = numbers("order", *order);
  return options;
}

// `order` is one for queries and keys; select_idx is [B, H, query blocks, M].
std::tuple<Tensor, Tensor> block_sparse_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                                  const Tensor& select_idx, const Tensor& select_num_idx,
                                                  const Tensor& query_starts, const Tensor& key_starts,
                                                  std::optional<Tensor> order, std::optional<double> scale, bool causal,
                                                  const std::vector<int64_t>& key_lengths,
                                                  std::optional<Tensor> attn_mask) {
  auto [output, lse] = new_attention_results(query, value);
  const auto options = options_of(select_idx, select_num_idx, query_starts, key_starts, order, scale, causal,
                                  key_lengths, attn_mask, lse);
  throw_if_error(kernels::block_sparse_attention(kernel_float_view("query", query), kernel_float_view("key", key),
                                                 kernel_float_view("value", value), options,
                                                 kernel_float_view("output", output)));
  return {output, lse};
}

// Gradients of query, key and value.
std::tuple<Tensor, Tensor, Tensor> block_sparse_attention_backward(
    const Tensor& output_grad, std::optional<Tensor> log_sum_exp_grad, const Tensor& query, const Tensor& key,
    const Tensor& value, const Tensor& output, const Tensor& log_sum_exp, const Tensor& select_idx,
    const Tensor& select_num_idx, const Tensor& query_starts, const Tensor& key_starts, std::optional<Tensor> order,
    std::optional<double> scale, bool causal, const std::vector<int64_t>& key_lengths,
    std::optional<Tensor> attn_mask) {
  const auto options = options_of(select_idx, select_num_idx, query_starts, key_starts, order, scale, causal,
                                  key_lengths, attn_mask, log_sum_exp);
  const AttentionGradientTensors result(query, key, value);
  throw_if_error(kernels::block_sparse_attention_backward(attention_forward(query, key, value, output), options,
                                                          attention_gradients(output_grad, log_sum_exp_grad),
                                                          result.views()));
  return result.tensors();
}

std::array<int64_t, 3> three(std::string_view name, const std::vector<int64_t>& sizes) {
  if (sizes.size() != 3) {
    throw_if_error(invalid_argument(std::string(name) + ": expected three numbers (frames, height, width), got " +
                                    std::to_string(sizes.size())));
  }
  return {sizes[0], sizes[1], sizes[2]};
}

Tensor vector_of(std::span<const int64_t> values) {
  Tensor tensor = torch::stable::empty({static_cast<int64_t>(values.size())}, ScalarType::Long);
  std::ranges::copy(values, static_cast<int64_t*>(tensor.mutable_data_ptr()));
  return tensor;
}

// (order, starts, tiles), the last one flat: three coordinates a block.
std::tuple<Tensor, Tensor, Tensor> tile_order(const std::vector<int64_t>& latent_shape,
                                              const std::vector<int64_t>& tile, int64_t text_len, bool text_first,
                                              bool first_frame_apart) {
  kernels::TileOptions options;
  options.latent = three("latent_shape", latent_shape);
  options.tile = three("tile", tile);
  options.text_length = text_len;
  options.is_text_first = text_first;
  options.has_first_frame_apart = first_frame_apart;
  const kernels::TileOrder result = value_or_throw(kernels::tile_order(options));
  std::vector<int64_t> flat;
  for (const auto& coordinates : result.tiles) flat.insert(flat.end(), coordinates.begin(), coordinates.end());
  return {vector_of(result.order), vector_of(result.starts), vector_of(flat)};
}

kernels::SelectionRule rule_named(const std::string& name) {
  if (name == "topk") return kernels::SelectionRule::kTopK;
  if (name == "cdf") return kernels::SelectionRule::kCdf;
  if (name == "window") return kernels::SelectionRule::kWindow;
  throw_if_error(invalid_argument("rule: expected topk, cdf or window, got " + name));
  return {};
}

// (select_idx, select_num_idx, density). `amount` is the sparsity of topk or the threshold of cdf. keep: whether the
// first frame and the text are kept (0 or 1 each), the number of sink blocks and of recent blocks.
std::tuple<Tensor, Tensor, Tensor> select_blocks(const Tensor& query, const Tensor& key, const Tensor& order,
                                                 const Tensor& starts, const Tensor& tiles, const std::string& rule,
                                                 double amount, const std::vector<int64_t>& window,
                                                 const std::vector<int64_t>& keep, std::optional<double> scale,
                                                 std::optional<Tensor> token_mask) {
  const TensorView q = float32_view("query", query), k = float32_view("key", key);
  if (q.num_dims() != 4) throw_if_error(invalid_argument("query: expected 4 dimensions, got " + q.to_string()));
  if (keep.size() != 4) throw_if_error(invalid_argument("keep: expected four numbers"));
  const std::span<const int64_t> flat = numbers("tiles", tiles);
  std::vector<std::array<int64_t, 3>> coordinates;
  for (size_t i = 0; i + 2 < flat.size(); i += 3) coordinates.push_back({flat[i], flat[i + 1], flat[i + 2]});
  kernels::SelectionOptions options;
  options.rule = rule_named(rule);
  if (options.rule == kernels::SelectionRule::kTopK) options.sparsity = amount;
  if (options.rule == kernels::SelectionRule::kCdf) options.cdf_threshold = amount;
  options.window = three("window", window);
  options.scale = narrowed(scale);
  options.keeps_first_frame = keep[0] != 0;
  options.keeps_text = keep[1] != 0;
  options.num_sink_blocks = keep[2];
  options.num_recent_blocks = keep[3];
  if (token_mask.has_value()) options.token_mask = mask_view("token_mask", *token_mask);
  options.order = numbers("order", order);
  options.starts = numbers("starts", starts);
  options.tiles = coordinates;
  const auto blocks = static_cast<int64_t>(coordinates.size());
  Tensor idx = torch::stable::empty({q.size(0), q.size(1), blocks, blocks}, ScalarType::Long);
  Tensor num = torch::stable::empty({q.size(0), q.size(1), blocks}, ScalarType::Long);
  Tensor density = torch::stable::empty({}, ScalarType::Double);
  *static_cast<double*>(density.mutable_data_ptr()) = value_or_throw(
      kernels::select_blocks(q, k, options, int64_view("select_idx", idx), int64_view("select_num_idx", num)));
  return {idx, num, density};
}

// A mask like the contiguous `scores`, with the k highest of each row of the last dimension.
Tensor top_k_blocks(const Tensor& scores, int64_t k) {
  const TensorView view = float32_view("scores", scores);
  if (view.num_dims() == 0 || !view.is_contiguous()) {
    throw_if_error(invalid_argument("scores: expected a contiguous tensor of rows, got " + view.to_string()));
  }
  if (k < 0) throw_if_error(invalid_argument("k: expected 0 or more, got " + std::to_string(k)));
  Tensor mask = torch::stable::empty(scores.sizes(), ScalarType::Bool);
  auto* bytes = static_cast<uint8_t*>(mask.mutable_data_ptr());
  std::fill_n(bytes, view.num_elements(), uint8_t{0});
  const auto width = static_cast<size_t>(view.size(-1));
  for (size_t row = 0; row * width < static_cast<size_t>(view.num_elements()); ++row) {
    kernels::add_highest({view.data_as<float>() + row * width, width}, k, {bytes + row * width, width});
  }
  return mask;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def(
      "block_sparse_attention(Tensor query, Tensor key, Tensor value, Tensor select_idx, Tensor select_num_idx, "
      "Tensor query_starts, Tensor key_starts, Tensor? order=None, float? scale=None, bool causal=False, "
      "int[] key_lengths=[], Tensor? attn_mask=None) -> (Tensor output, Tensor log_sum_exp)");
  library.def(
      "block_sparse_attention_backward(Tensor output_grad, Tensor? log_sum_exp_grad, Tensor query, Tensor key, "
      "Tensor value, Tensor output, Tensor log_sum_exp, Tensor select_idx, Tensor select_num_idx, Tensor query_starts, "
      "Tensor key_starts, Tensor? order, float? scale, bool causal, int[] key_lengths, Tensor? attn_mask) "
      "-> (Tensor query_grad, Tensor key_grad, Tensor value_grad)");
  library.def(
      "tile_order(int[] latent_shape, int[] tile, int text_len, bool text_first, bool first_frame_apart) "
      "-> (Tensor order, Tensor starts, Tensor tiles)");
  library.def(
      "select_blocks(Tensor query, Tensor key, Tensor order, Tensor starts, Tensor tiles, str rule, float amount, "
      "int[] window, int[] keep, float? scale=None, Tensor? token_mask=None) -> (Tensor select_idx, Tensor "
      "select_num_idx, Tensor density)");
  library.def("top_k_blocks(Tensor scores, int k) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("block_sparse_attention", TORCH_BOX(&qx::torch_bridge::block_sparse_attention));
  library.impl("block_sparse_attention_backward", TORCH_BOX(&qx::torch_bridge::block_sparse_attention_backward));
  library.impl("select_blocks", TORCH_BOX(&qx::torch_bridge::select_blocks));
  library.impl("top_k_blocks", TORCH_BOX(&qx::torch_bridge::top_k_blocks));
}

// It has no tensor among its arguments.
STABLE_TORCH_LIBRARY_IMPL(quincunx, CompositeExplicitAutograd, library) {
  library.impl("tile_order", TORCH_BOX(&qx::torch_bridge::tile_order));
}
