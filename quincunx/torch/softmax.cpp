// torch.ops.quincunx.softmax
#include "quincunx/kernels/softmax/softmax.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

Tensor softmax(const Tensor& x, int64_t dim) {
  if (x.dim() == 0) throw_if_error(invalid_argument("x: expected at least one dimension, got a scalar"));
  if (dim < -x.dim() || dim >= x.dim()) {
    throw_if_error(invalid_argument("dim: expected " + std::to_string(-x.dim()) + " to " + std::to_string(x.dim() - 1) +
                                    ", got " + std::to_string(dim)));
  }
  const TensorView input = kernel_float_view("x", torch::stable::transpose(x, dim, -1));
  Tensor result = torch::stable::empty_like(x);
  throw_if_error(kernels::softmax(input, kernel_float_view("result", torch::stable::transpose(result, dim, -1))));
  return result;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) { library.def("softmax(Tensor x, int dim=-1) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) { library.impl("softmax", TORCH_BOX(&qx::torch_bridge::softmax)); }
