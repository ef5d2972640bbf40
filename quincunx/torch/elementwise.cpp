// torch.ops.quincunx.unary and gated
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <string>

#include "quincunx/kernels/elementwise/unary.h"
#include "quincunx/torch/result_memory.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

Tensor unary(const Tensor& x, const std::string& function) {
  const auto chosen = value_or_throw(kernels::unary_function_from_name(function));
  const TensorView input = kernel_float_view("x", x);
  Tensor result = result_like(x);
  throw_if_error(kernels::apply_unary(chosen, input, kernel_float_view("result", result)));
  return result;
}

Tensor gated(const Tensor& gate, const Tensor& up, const std::string& function) {
  const auto chosen = value_or_throw(kernels::unary_function_from_name(function));
  const TensorView gates = kernel_float_view("gate", gate);
  const TensorView factors = kernel_float_view("up", up);
  Tensor result = result_like(gate);
  throw_if_error(kernels::apply_gated(chosen, gates, factors, kernel_float_view("result", result)));
  return result;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("unary(Tensor x, str function) -> Tensor");
  library.def("gated(Tensor gate, Tensor up, str function=\"silu\") -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("unary", TORCH_BOX(&qx::torch_bridge::unary));
  library.impl("gated", TORCH_BOX(&qx::torch_bridge::gated));
}
