// torch.ops.quincunx.pack_linear_weight, packed_linear, packed_linear_out, pack_gated_weight, gated_linear, gram and
// symmetric_polynomial
#include "quincunx/kernels/gemm/gemm.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <array>
#include <optional>

#include "quincunx/kernels/gemm/gated_gemm.h"
#include "quincunx/kernels/gemm/symmetric_product.h"
#include "quincunx/torch/packed_origin.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using Packer = PackedOrigin::Packer;
using torch::stable::Tensor;

// A weight [out_features, in_features], as in torch.nn.Linear, seen as [in_features, out_features].
TensorView transposed_weight(std::string_view name, const Tensor& weight) {
  const TensorView view = float32_view(name, weight);
  if (view.num_dims() != 2) {
    throw_if_error(
        invalid_argument(std::string(name) + ": expected [out_features, in_features], got " + view.to_string()));
  }
  const std::array shape{view.size(1), view.size(0)};
  const std::array strides{view.stride(1), view.stride(0)};
  return value_or_throw(TensorView::strided(view.data(), view.dtype(), shape, strides));
}

// Memory of a weight of `size` floats, which `pack` fills.
template <class Pack>
Tensor packed_from(const Tensor& weight, int64_t size, const PackedOrigin& origin, const Pack& pack) {
  const int64_t with_origin = size + kPackedOriginFloats;
  Tensor packed = torch::stable::new_empty(weight, {&with_origin, 1});
  value_or_throw(pack(std::span(static_cast<float*>(packed.mutable_data_ptr()), static_cast<size_t>(size))));
  write_origin(packed, origin);
  return packed;
}

// weight: any strides. The result is one-dimensional.
Tensor pack_linear_weight(const Tensor& weight) {
  const TensorView b = transposed_weight("weight", weight);
  const int64_t size = value_or_throw(kernels::packed_matrix_size(b.size(0), b.size(1)));
  return packed_from(weight, size, {Packer::kLinear, {1, b.size(1), b.size(0)}},
                     [&](std::span<float> storage) { return kernels::pack_b(b, storage); });
}

Tensor pack_gated_weight(const Tensor& gate, const Tensor& up) {
  const TensorView gate_view = transposed_weight("gate", gate);
  const int64_t size = value_or_throw(kernels::packed_gated_matrix_size(gate_view.size(0), gate_view.size(1)));
  const TensorView up_view = transposed_weight("up", up);
  return packed_from(gate, size, {Packer::kGated, {1, gate_view.size(1), gate_view.size(0)}},
                     [&](std::span<float> storage) { return kernels::pack_gated(gate_view, up_view, storage); });
}

// The leading dimensions as one; copies only where the strides leave no other way.
Tensor as_matrix(const Tensor& x) {
  if (x.dim() == 2) return x;
  std::array<int64_t, 2> shape{1, x.size(-1)};
  for (int64_t i = 0; i + 1 < x.dim(); ++i) shape[0] *= x.size(i);
  return torch::stable::reshape(x, shape);
}

void check_input(const Tensor& x) {
  if (x.dim() < 1 || x.size(-1) == 0) {
    throw_if_error(invalid_argument("x: expected [..., in_features] with at least one feature"));
  }
}

// Views of optional operands, which the options of a product point to.
class OptionViews {
 public:
  OptionViews(const std::optional<Tensor>& bias, const std::string& activation, const std::optional<Tensor>& residual,
              double scale, const std::optional<Tensor>& row_scale, const Tensor& result) {
    options.activation = value_or_throw(kernels::activation_from_name(activation));
    options.scale = static_cast<float>(scale);
    if (bias.has_value()) options.bias = &(bias_ = float32_view("bias", *bias));
    if (row_scale.has_value()) {
      row_scale_tensor_ = row_scale->dim() == 1 ? *row_scale : torch::stable::flatten(*row_scale);
      options.row_scale = &(row_scale_ = float32_view("row_scale", *row_scale_tensor_));
    }
    if (residual.has_value()) {
      if (residual->sizes() != result.sizes()) {
        throw_if_error(invalid_argument("residual: expected the result's shape"));
      }
      residual_tensor_ = as_matrix(*residual);
      options.residual = &(residual_ = float32_view("residual", *residual_tensor_));
    }
  }
  OptionViews(const OptionViews&) = delete;
  OptionViews& operator=(const OptionViews&) = delete;

  kernels::GemmOptions options;

 private:
  TensorView bias_, row_scale_, residual_;
  std::optional<Tensor> row_scale_tensor_, residual_tensor_;
};

void multiply_packed(const Tensor& x, const Tensor& packed, int64_t out_features, const OptionViews& views,
                     const Tensor& result) {
  const int64_t size = value_or_throw(kernels::packed_matrix_size(x.size(-1), out_features));
  const auto* data =
      static_cast<const float*>(packed_data(packed, size, {Packer::kLinear, {1, out_features, x.size(-1)}}));
  throw_if_error(kernels::gemm(float32_view("x", as_matrix(x)), {data, x.size(-1), out_features},
                               float32_view("result", as_matrix(result)), views.options));
}

// row_scale * activation(scale * x weight^T + bias) + residual over the last dimension of x.
Tensor packed_linear(const Tensor& x, const Tensor& packed, int64_t out_features, const std::optional<Tensor>& bias,
                     const std::string& activation, const std::optional<Tensor>& residual, double scale,
                     const std::optional<Tensor>& row_scale) {
  check_input(x);
  value_or_throw(kernels::packed_matrix_size(x.size(-1), out_features));  // before memory for so many features
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = out_features;
  Tensor result = torch::stable::new_empty(x, shape);
  multiply_packed(x, packed, out_features, {bias, activation, residual, scale, row_scale, result}, result);
  return result;
}

// The same into `out`, whose rows may be apart: no memory is asked for.
void packed_linear_out(const Tensor& x, const Tensor& packed, const std::optional<Tensor>& bias,
                       const std::string& activation, const std::optional<Tensor>& residual, double scale,
                       const std::optional<Tensor>& row_scale, Tensor out) {
  check_input(x);
  if (x.dim() != 2 || out.dim() != 2) throw_if_error(invalid_argument("x, out: expected two dimensions each"));
  multiply_packed(x, packed, out.size(1), {bias, activation, residual, scale, row_scale, out}, out);
}

// row_scale * activation(x gate^T + bias) * (x up^T + up_bias) + residual over the last dimension of x.
Tensor gated_linear(const Tensor& x, const Tensor& packed, int64_t out_features, const std::string& activation,
                    const std::optional<Tensor>& bias, const std::optional<Tensor>& up_bias,
                    const std::optional<Tensor>& residual, const std::optional<Tensor>& row_scale) {
  check_input(x);
  const int64_t size = value_or_throw(kernels::packed_gated_matrix_size(x.size(-1), out_features));
  const auto* data =
      static_cast<const float*>(packed_data(packed, size, {Packer::kGated, {1, out_features, x.size(-1)}}));
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = out_features;
  Tensor result = torch::stable::new_empty(x, shape);
  const OptionViews views(bias, activation, residual, 1.0, row_scale, result);
  TensorView up_bias_view;
  const TensorView* up = up_bias.has_value() ? &(up_bias_view = float32_view("up_bias", *up_bias)) : nullptr;
  throw_if_error(kernels::gated_gemm(float32_view("x", as_matrix(x)), {data, x.size(-1), out_features},
                                     float32_view("result", as_matrix(result)), views.options, up));
  return result;
}

Tensor square_like(const Tensor& x) {
  if (x.dim() != 2) throw_if_error(invalid_argument("x: expected two dimensions, got " + std::to_string(x.dim())));
  const std::array shape{x.size(0), x.size(0)};
  return torch::stable::new_empty(x, shape);
}

// scale * x x^T
Tensor gram(const Tensor& x, double scale) {
  Tensor result = square_like(x);
  throw_if_error(kernels::gram(float32_view("x", x), float32_view("result", result), static_cast<float>(scale)));
  return result;
}

// a I + b x + c x x for a symmetric x
Tensor symmetric_polynomial(const Tensor& x, double a, double b, double c) {
  Tensor result = square_like(x);
  const kernels::PolynomialStep step{static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)};
  throw_if_error(kernels::symmetric_polynomial(float32_view("x", x), step, float32_view("result", result)));
  return result;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("pack_linear_weight(Tensor weight) -> Tensor");
  library.def(
      "packed_linear(Tensor x, Tensor packed, int out_features, Tensor? bias=None, str activation=\"none\", "
      "Tensor? residual=None, float scale=1.0, Tensor? row_scale=None) -> Tensor");
  library.def(
      "packed_linear_out(Tensor x, Tensor packed, Tensor? bias=None, str activation=\"none\", Tensor? residual=None, "
      "float scale=1.0, Tensor? row_scale=None, *, Tensor(a!) out) -> ()");
  library.def("pack_gated_weight(Tensor gate, Tensor up) -> Tensor");
  library.def(
      "gated_linear(Tensor x, Tensor packed, int out_features, str activation=\"silu\", Tensor? bias=None, "
      "Tensor? up_bias=None, Tensor? residual=None, Tensor? row_scale=None) -> Tensor");
  library.def("gram(Tensor x, float scale=1.0) -> Tensor");
  library.def("symmetric_polynomial(Tensor x, float a, float b, float c) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("pack_linear_weight", TORCH_BOX(&qx::torch_bridge::pack_linear_weight));
  library.impl("packed_linear", TORCH_BOX(&qx::torch_bridge::packed_linear));
  library.impl("packed_linear_out", TORCH_BOX(&qx::torch_bridge::packed_linear_out));
  library.impl("pack_gated_weight", TORCH_BOX(&qx::torch_bridge::pack_gated_weight));
  library.impl("gated_linear", TORCH_BOX(&qx::torch_bridge::gated_linear));
  library.impl("gram", TORCH_BOX(&qx::torch_bridge::gram));
  library.impl("symmetric_polynomial", TORCH_BOX(&qx::torch_bridge::symmetric_polynomial));
}
