// torch.ops.quincunx.batched_gemm, pack_grouped_weight and grouped_linear
#include "quincunx/kernels/gemm/batched_gemm.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <array>
#include <optional>

#include "quincunx/torch/packed_origin.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

// row_scale * activation(scale * a b + bias) + residual for each of the leading products; a [B, M, K], b [B, K, N] of
// any strides, so that transposed views cost nothing.
Tensor batched_gemm(const Tensor& a, const Tensor& b, const std::optional<Tensor>& bias, const std::string& activation,
                    const std::optional<Tensor>& residual, double scale, const std::optional<Tensor>& row_scale) {
  if (a.dim() != 3 || b.dim() != 3) throw_if_error(invalid_argument("a, b: expected three dimensions each"));
  const std::array shape{a.size(0), a.size(1), b.size(2)};
  Tensor result = torch::stable::new_empty(a, shape);
  kernels::GemmOptions options;
  options.activation = value_or_throw(kernels::activation_from_name(activation));
  options.scale = static_cast<float>(scale);
  TensorView bias_view, residual_view, row_scale_view;
  if (bias.has_value()) options.bias = &(bias_view = float32_view("bias", *bias));
  if (residual.has_value()) options.residual = &(residual_view = float32_view("residual", *residual));
  if (row_scale.has_value()) options.row_scale = &(row_scale_view = float32_view("row_scale", *row_scale));
  throw_if_error(
      kernels::batched_gemm(float32_view("a", a), float32_view("b", b), float32_view("result", result), options));
  return result;
}

// weight: [groups, out_features, in_features]. The result is one-dimensional.
Tensor pack_grouped_weight(const Tensor& weight) {
  const TensorView view = float32_view("weight", weight);
  if (view.num_dims() != 3) {
    throw_if_error(invalid_argument("weight: expected [groups, out_features, in_features], got " + view.to_string()));
  }
  const std::array shape{view.size(0), view.size(2), view.size(1)};
  const std::array strides{view.stride(0), view.stride(2), view.stride(1)};
  const TensorView b = value_or_throw(TensorView::strided(view.data(), view.dtype(), shape, strides));
  const int64_t size = value_or_throw(kernels::packed_groups_size(shape[0], shape[1], shape[2]));
  const int64_t with_origin = size + kPackedOriginFloats;
  Tensor packed = torch::stable::new_empty(weight, {&with_origin, 1});
  const std::span<float> storage(static_cast<float*>(packed.mutable_data_ptr()), static_cast<size_t>(size));
  value_or_throw(kernels::pack_groups(b, storage));
  write_origin(packed, {PackedOrigin::Packer::kGrouped, {view.size(0), view.size(1), view.size(2)}});
  return packed;
}

// Rows offsets[g] ... offsets[g + 1] of x [T, in_features] times the weight of group g.
Tensor grouped_linear(const Tensor& x, const Tensor& packed, int64_t out_features, const std::vector<int64_t>& offsets,
                      const std::optional<Tensor>& bias, const std::string& activation,
                      const std::optional<Tensor>& row_scale) {
  if (x.dim() != 2 || offsets.empty()) {
    throw_if_error(invalid_argument("x, offsets: expected [tokens, in_features] and one number more than groups"));
  }
  const auto groups = static_cast<int64_t>(offsets.size()) - 1;
  const int64_t size = value_or_throw(kernels::packed_groups_size(groups, x.size(1), out_features));
  const auto* data = static_cast<const float*>(
      packed_data(packed, size, {PackedOrigin::Packer::kGrouped, {groups, out_features, x.size(1)}}));
  const std::array shape{x.size(0), out_features};
  Tensor result = torch::stable::new_empty(x, shape);
  kernels::GemmOptions options;
  options.activation = value_or_throw(kernels::activation_from_name(activation));
  TensorView bias_view, row_scale_view;
  if (bias.has_value()) options.bias = &(bias_view = float32_view("bias", *bias));
  if (row_scale.has_value()) options.row_scale = &(row_scale_view = float32_view("row_scale", *row_scale));
  throw_if_error(kernels::grouped_gemm(float32_view("x", x), {data, groups, x.size(1), out_features}, offsets,
                                       float32_view("result", result), options));
  return result;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def(
      "batched_gemm(Tensor a, Tensor b, Tensor? bias=None, str activation=\"none\", Tensor? residual=None, "
      "float scale=1.0, Tensor? row_scale=None) -> Tensor");
  library.def("pack_grouped_weight(Tensor weight) -> Tensor");
  library.def(
      "grouped_linear(Tensor x, Tensor packed, int out_features, int[] offsets, Tensor? bias=None, "
      "str activation=\"none\", Tensor? row_scale=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("batched_gemm", TORCH_BOX(&qx::torch_bridge::batched_gemm));
  library.impl("pack_grouped_weight", TORCH_BOX(&qx::torch_bridge::pack_grouped_weight));
  library.impl("grouped_linear", TORCH_BOX(&qx::torch_bridge::grouped_linear));
}
