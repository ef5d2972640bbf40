// torch.ops.quincunx.rms_norm, layer_norm, their forms with a residual and with modulation, and group_norm
#include "quincunx/kernels/norm/norm.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <optional>
#include <string_view>
#include <tuple>

#include "quincunx/kernels/norm/group_norm.h"
#include "quincunx/torch/result_memory.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;
using Parameter = std::optional<Tensor>;

std::optional<TensorView> optional_view(std::string_view name, const Parameter& tensor) {
  if (!tensor.has_value()) return std::nullopt;
  return kernel_float_view(name, *tensor);
}

kernels::NormOptions norm_options(const Parameter& weight, const Parameter& bias, double eps) {
  return {.weight = optional_view("weight", weight), .bias = optional_view("bias", bias), .eps = eps};
}

using Norm = Status (*)(const TensorView&, const kernels::NormOptions&, const TensorView&);

Tensor normalized(Norm norm, const Tensor& x, const kernels::NormOptions& options) {
  const TensorView input = kernel_float_view("x", x);
  Tensor result = result_like(x);
  throw_if_error(norm(input, options, kernel_float_view("result", result)));
  return result;
}

std::tuple<Tensor, Tensor> added(Norm norm, const Tensor& x, const Tensor& residual, kernels::NormOptions options) {
  const TensorView input = kernel_float_view("x", x);
  options.residual = kernel_float_view("residual", residual);
  Tensor result = result_like(x);
  Tensor sum = result_like(x);
  options.sum = kernel_float_view("sum", sum);
  throw_if_error(norm(input, options, kernel_float_view("result", result)));
  return {result, sum};
}

Tensor rms_norm(const Tensor& x, const Parameter& weight, double eps) {
  return normalized(kernels::rms_norm, x, norm_options(weight, std::nullopt, eps));
}

Tensor layer_norm(const Tensor& x, const Parameter& weight, const Parameter& bias, double eps) {
  return normalized(kernels::layer_norm, x, norm_options(weight, bias, eps));
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual, const Parameter& weight, double eps) {
  return added(kernels::rms_norm, x, residual, norm_options(weight, std::nullopt, eps));
}

std::tuple<Tensor, Tensor> add_layer_norm(const Tensor& x, const Tensor& residual, const Parameter& weight,
                                          const Parameter& bias, double eps) {
  return added(kernels::layer_norm, x, residual, norm_options(weight, bias, eps));
}

Tensor modulated_layer_norm(const Tensor& x, const Tensor& scale, const Tensor& shift, double eps) {
  kernels::NormOptions options = norm_options(std::nullopt, std::nullopt, eps);
  options.scale = kernel_float_view("scale", scale);
  options.shift = kernel_float_view("shift", shift);
  return normalized(kernels::layer_norm, x, options);
}

Tensor modulated_rms_norm(const Tensor& x, const Parameter& weight, const Tensor& scale, const Tensor& shift,
                          double eps) {
  kernels::NormOptions options = norm_options(weight, std::nullopt, eps);
  options.scale = kernel_float_view("scale", scale);
  options.shift = kernel_float_view("shift", shift);
  return normalized(kernels::rms_norm, x, options);
}

Tensor group_norm(const Tensor& x, int64_t num_groups, const Parameter& weight, const Parameter& bias, double eps,
                  bool silu) {
  const kernels::GroupNormOptions options{.num_groups = num_groups,
                                          .weight = optional_view("weight", weight),
                                          .bias = optional_view("bias", bias),
                                          .eps = eps,
                                          .silu = silu};
  const TensorView input = kernel_float_view("x", x);
  Tensor result = result_like(x);
  throw_if_error(kernels::group_norm(input, options, kernel_float_view("result", result)));
  return result;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("rms_norm(Tensor x, Tensor? weight=None, float eps=1e-6) -> Tensor");
  library.def("layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor");
  library.def(
      "add_rms_norm(Tensor x, Tensor residual, Tensor? weight=None, float eps=1e-6) -> (Tensor output, Tensor sum)");
  library.def(
      "add_layer_norm(Tensor x, Tensor residual, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> "
      "(Tensor output, Tensor sum)");
  library.def("modulated_rms_norm(Tensor x, Tensor? weight, Tensor scale, Tensor shift, float eps=1e-6) -> Tensor");
  library.def("modulated_layer_norm(Tensor x, Tensor scale, Tensor shift, float eps=1e-5) -> Tensor");
  library.def(
      "group_norm(Tensor x, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-5, bool silu=False) "
      "-> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("rms_norm", TORCH_BOX(&qx::torch_bridge::rms_norm));
  library.impl("layer_norm", TORCH_BOX(&qx::torch_bridge::layer_norm));
  library.impl("add_rms_norm", TORCH_BOX(&qx::torch_bridge::add_rms_norm));
  library.impl("add_layer_norm", TORCH_BOX(&qx::torch_bridge::add_layer_norm));
  library.impl("modulated_rms_norm", TORCH_BOX(&qx::torch_bridge::modulated_rms_norm));
  library.impl("modulated_layer_norm", TORCH_BOX(&qx::torch_bridge::modulated_layer_norm));
  library.impl("group_norm", TORCH_BOX(&qx::torch_bridge::group_norm));
}
