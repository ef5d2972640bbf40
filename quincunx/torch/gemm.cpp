// torch.ops.quincunx.pack_linear_weight and packed_linear
#include "quincunx/kernels/gemm/gemm.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <array>
#include <optional>

#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

// weight: [out_features, in_features] as in torch.nn.Linear, any strides. The result is one-dimensional.
Tensor pack_linear_weight(const Tensor& weight) {
  const TensorView view = float32_view("weight", weight);
  if (view.num_dims() != 2) {
    throw_if_error(invalid_argument("weight: expected [out_features, in_features], got " + view.to_string()));
  }
  const std::array shape{view.size(1), view.size(0)};
  const std::array strides{view.stride(1), view.stride(0)};
  const TensorView b = value_or_throw(TensorView::strided(view.data(), view.dtype(), shape, strides));
  const int64_t size = value_or_throw(kernels::packed_matrix_size(shape[0], shape[1]));
  Tensor packed = torch::stable::new_empty(weight, {&size, 1});
  const std::span<float> storage(static_cast<float*>(packed.mutable_data_ptr()), static_cast<size_t>(size));
  value_or_throw(kernels::pack_b(b, storage));
  return packed;
}

// The leading dimensions as one; copies only where the strides leave no other way.
Tensor as_matrix(const Tensor& x) {
  const std::array<int64_t, 2> shape{x.size(-1) == 0 ? 0 : x.numel() / x.size(-1), x.size(-1)};
  return torch::stable::reshape(x, shape);
}

// activation(x weight^T + bias) + residual over the last dimension of x.
Tensor packed_linear(const Tensor& x, const Tensor& packed, int64_t out_features, const std::optional<Tensor>& bias,
                     const std::string& activation, const std::optional<Tensor>& residual) {
  if (x.dim() < 1 || x.size(-1) == 0) {
    throw_if_error(invalid_argument("x: expected [..., in_features] with at least one feature"));
  }
  const int64_t in_features = x.size(-1);
  const TensorView weights = float32_view("packed", packed);
  const int64_t size = value_or_throw(kernels::packed_matrix_size(in_features, out_features));
  if (weights.num_dims() != 1 || weights.size(0) != size || !weights.is_contiguous()) {
    throw_if_error(invalid_argument("packed: expected the " + std::to_string(size) + " contiguous floats that " +
                                    "pack_linear_weight gives for [" + std::to_string(out_features) + ", " +
                                    std::to_string(in_features) + "], got " + weights.to_string()));
  }
  std::vector<int64_t> result_shape(x.sizes().begin(), x.sizes().end());
  result_shape.back() = out_features;
  Tensor result = torch::stable::new_empty(x, result_shape);

  const Tensor x_matrix = as_matrix(x);
  const std::array<int64_t, 2> matrix_shape{x_matrix.size(0), out_features};
  const Tensor result_matrix = torch::stable::view(result, matrix_shape);
  kernels::GemmOptions options;
  options.activation = value_or_throw(kernels::activation_from_name(activation));
  TensorView bias_view;
  if (bias.has_value()) options.bias = &(bias_view = float32_view("bias", *bias));
  TensorView residual_view;
  std::optional<Tensor> residual_matrix;
  if (residual.has_value()) {
    if (residual->sizes() != result.sizes()) throw_if_error(invalid_argument("residual: expected the result's shape"));
    residual_matrix = torch::stable::reshape(*residual, matrix_shape);
    options.residual = &(residual_view = float32_view("residual", *residual_matrix));
  }
  throw_if_error(kernels::gemm(float32_view("x", x_matrix),
                               kernels::PackedMatrix{weights.data_as<const float>(), in_features, out_features},
                               float32_view("result", result_matrix), options));
  return result;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("pack_linear_weight(Tensor weight) -> Tensor");
  library.def(
      "packed_linear(Tensor x, Tensor packed, int out_features, Tensor? bias=None, str activation=\"none\", "
      "Tensor? residual=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("pack_linear_weight", TORCH_BOX(&qx::torch_bridge::pack_linear_weight));
  library.impl("packed_linear", TORCH_BOX(&qx::torch_bridge::packed_linear));
}
