// torch.ops.quincunx.rms_norm and layer_norm
#include "quincunx/kernels/norm/norm.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <optional>

#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

Tensor rms_norm(const Tensor& x, const std::optional<Tensor>& weight, double eps) {
  kernels::NormOptions options;
  options.eps = eps;
  if (weight.has_value()) options.weight = kernel_float_view("weight", *weight);
  const TensorView input = kernel_float_view("x", x);
  Tensor result = torch::stable::empty_like(x);
  throw_if_error(kernels::rms_norm(input, options, kernel_float_view("result", result)));
  return result;
}

Tensor layer_norm(const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, double eps) {
  kernels::NormOptions options;
  options.eps = eps;
  if (weight.has_value()) options.weight = kernel_float_view("weight", *weight);
  if (bias.has_value()) options.bias = kernel_float_view("bias", *bias);
  const TensorView input = kernel_float_view("x", x);
  Tensor result = torch::stable::empty_like(x);
  throw_if_error(kernels::layer_norm(input, options, kernel_float_view("result", result)));
  return result;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("rms_norm(Tensor x, Tensor? weight=None, float eps=1e-6) -> Tensor");
  library.def("layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("rms_norm", TORCH_BOX(&qx::torch_bridge::rms_norm));
  library.impl("layer_norm", TORCH_BOX(&qx::torch_bridge::layer_norm));
}
