// torch.ops.quincunx.pack_low_precision_weight, unpack_low_precision_weight and low_precision_linear
#include "quincunx/kernels/low_precision_gemm/low_precision_gemm.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "quincunx/torch/packed_origin.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// weight: [out_features, in_features] as in torch.nn.Linear, any strides. The result holds bytes.
Tensor pack_low_precision_weight(const Tensor& weight, const std::string& format) {
  const TensorView view = kernel_float_view("weight", weight);
  if (view.num_dims() != 2) {
    throw_if_error(invalid_argument("weight: expected [out_features, in_features], got " + view.to_string()));
  }
  const TensorView inner_first = value_or_throw(view.transpose(0, 1));
  const kernels::WeightFormat stored = value_or_throw(kernels::weight_format_from_name(format));
  const int64_t size =
      value_or_throw(kernels::packed_weight_size_bytes(stored, inner_first.size(0), inner_first.size(1)));
  const int64_t with_origin = size + kPackedOriginBytes;
  Tensor packed = torch::stable::new_empty(weight, {&with_origin, 1}, ScalarType::Byte);
  const std::span<uint8_t> storage(static_cast<uint8_t*>(packed.mutable_data_ptr()), static_cast<size_t>(size));
  value_or_throw(kernels::pack_weight(inner_first, stored, storage));
  write_origin(packed, {PackedOrigin::Packer::kLowPrecision, {1, view.size(0), view.size(1)}, stored});
  return packed;
}

kernels::PackedWeight packed_view(const Tensor& packed, int64_t in_features, int64_t out_features,
                                  const std::string& format) {
  const kernels::WeightFormat stored = value_or_throw(kernels::weight_format_from_name(format));
  const int64_t size = value_or_throw(kernels::packed_weight_size_bytes(stored, in_features, out_features));
  const void* data =
      packed_data(packed, size, {PackedOrigin::Packer::kLowPrecision, {1, out_features, in_features}, stored});
  return {static_cast<const uint8_t*>(data), in_features, out_features, stored};
}

// The weight as low_precision_linear sees it, float32.
Tensor unpack_low_precision_weight(const Tensor& packed, int64_t out_features, int64_t in_features,
                                   const std::string& format) {
  const kernels::PackedWeight weight = packed_view(packed, in_features, out_features, format);
  const std::array<int64_t, 2> shape{out_features, in_features};
  Tensor result = torch::stable::new_empty(packed, shape, ScalarType::Float);
  const TensorView view = float32_view("result", result);
  throw_if_error(kernels::unpack_weight(weight, value_or_throw(view.transpose(0, 1))));
  return result;
}

// The leading dimensions as one; copies only where the strides leave no other way.
Tensor as_matrix(const Tensor& x) {
  const std::array<int64_t, 2> shape{x.size(-1) == 0 ? 0 : x.numel() / x.size(-1), x.size(-1)};
  return torch::stable::reshape(x, shape);
}

// activation(x weight^T + bias) + residual over the last dimension of x, in x's dtype.
Tensor low_precision_linear(const Tensor& x, const Tensor& packed, int64_t out_features, const std::string& format,
                            const std::optional<Tensor>& bias, const std::string& activation,
                            const std::optional<Tensor>& residual, const std::string& input, double input_scale,
                            int64_t input_zero_point) {
  if (x.dim() < 1 || x.size(-1) == 0) {
    throw_if_error(invalid_argument("x: expected [..., in_features] with at least one feature"));
  }
  const kernels::PackedWeight weight = packed_view(packed, x.size(-1), out_features, format);
  kernels::LowPrecisionOptions options;
  options.activation = value_or_throw(kernels::activation_from_name(activation));
  options.input = value_or_throw(kernels::input_quantization_from_name(input));
  options.input_scale = static_cast<float>(input_scale);
  options.input_zero_point = static_cast<int32_t>(std::clamp<int64_t>(input_zero_point, -1000, 1000));

  std::vector<int64_t> result_shape(x.sizes().begin(), x.sizes().end());
  result_shape.back() = out_features;
  Tensor result = torch::stable::new_empty(x, result_shape);
  const Tensor x_matrix = as_matrix(x);
  const std::array<int64_t, 2> matrix_shape{x_matrix.size(0), out_features};
  const Tensor result_matrix = torch::stable::view(result, matrix_shape);
  TensorView bias_view;
  if (bias.has_value()) options.bias = &(bias_view = kernel_float_view("bias", *bias));
  TensorView residual_view;
  std::optional<Tensor> residual_matrix;
  if (residual.has_value()) {
    if (residual->sizes() != result.sizes()) throw_if_error(invalid_argument("residual: expected the result's shape"));
    residual_matrix = torch::stable::reshape(*residual, matrix_shape);
    options.residual = &(residual_view = kernel_float_view("residual", *residual_matrix));
  }
  throw_if_error(kernels::low_precision_gemm(kernel_float_view("x", x_matrix), weight,
                                             kernel_float_view("result", result_matrix), options));
  return result;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("pack_low_precision_weight(Tensor weight, str format) -> Tensor");
  library.def("unpack_low_precision_weight(Tensor packed, int out_features, int in_features, str format) -> Tensor");
  library.def(
      "low_precision_linear(Tensor x, Tensor packed, int out_features, str format, Tensor? bias=None, "
      "str activation=\"none\", Tensor? residual=None, str input=\"none\", float input_scale=1.0, "
      "int input_zero_point=0) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("pack_low_precision_weight", TORCH_BOX(&qx::torch_bridge::pack_low_precision_weight));
  library.impl("unpack_low_precision_weight", TORCH_BOX(&qx::torch_bridge::unpack_low_precision_weight));
  library.impl("low_precision_linear", TORCH_BOX(&qx::torch_bridge::low_precision_linear));
}
