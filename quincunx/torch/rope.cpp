// torch.ops.quincunx.rope
#include "quincunx/kernels/rope/rope.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "quincunx/torch/result_memory.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

// x: [B, S, H, D] with sequence_dim 1 or [B, H, S, D] with 2; cos and sin: float32 [S, rotary dimensions / 2].
Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved, int64_t sequence_dim) {
  if (sequence_dim != 1 && sequence_dim != 2) {
    throw_if_error(invalid_argument("sequence_dim: expected 1 or 2, got " + std::to_string(sequence_dim)));
  }
  kernels::RopeOptions options;
  options.form = interleaved ? kernels::RopeForm::kInterleaved : kernels::RopeForm::kHalfSplit;
  options.sequence_dim = static_cast<int>(sequence_dim);
  const TensorView input = kernel_float_view("x", x);
  Tensor result = result_like(x);
  throw_if_error(kernels::apply_rope(input, float32_view("cos", cos), float32_view("sin", sin), options,
                                     kernel_float_view("result", result)));
  return result;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("rope(Tensor x, Tensor cos, Tensor sin, bool interleaved=False, int sequence_dim=1) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) { library.impl("rope", TORCH_BOX(&qx::torch_bridge::rope)); }
