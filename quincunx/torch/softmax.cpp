// torch.ops.quincunx.softmax, log_softmax, cross_entropy and cross_entropy_backward
#include "quincunx/kernels/softmax/softmax.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <limits>
#include <string>
#include <tuple>

#include "quincunx/kernels/cross_entropy/cross_entropy.h"
#include "quincunx/torch/result_memory.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

using AlongDim = Status (*)(const TensorView&, int, const TensorView&);

Tensor along_dim(AlongDim function, const Tensor& x, int64_t dim) {
  const TensorView input = kernel_float_view("x", x);
  if (x.dim() == 0) throw_if_error(invalid_argument("x: expected at least one dimension, got a scalar"));
  if (dim < -x.dim() || dim >= x.dim()) {
    throw_if_error(invalid_argument("dim: expected " + std::to_string(-x.dim()) + " to " + std::to_string(x.dim() - 1) +
                                    ", got " + std::to_string(dim)));
  }
  Tensor result = result_like(x);
  throw_if_error(function(input, static_cast<int>(dim), kernel_float_view("result", result)));
  return result;
}

Tensor softmax(const Tensor& x, int64_t dim) { return along_dim(kernels::softmax, x, dim); }
Tensor log_softmax(const Tensor& x, int64_t dim) { return along_dim(kernels::log_softmax, x, dim); }

kernels::CrossEntropyOptions loss_options(int64_t ignore_index, double label_smoothing, const std::string& reduction) {
  return {ignore_index, label_smoothing, value_or_throw(kernels::loss_reduction_from_name(reduction))};
}

Tensor empty_float(const Tensor& like, std::initializer_list<int64_t> shape) {
  return torch::stable::new_empty(like, shape, ScalarType::Float);
}

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& target, int64_t ignore_index,
                                         double label_smoothing, const std::string& reduction) {
  const kernels::CrossEntropyOptions options = loss_options(ignore_index, label_smoothing, reduction);
  const TensorView input = kernel_float_view("logits", logits);
  if (logits.dim() != 2) throw_if_error(invalid_argument("logits: expected 2 dimensions, got " + input.to_string()));
  Tensor log_sum_exp = empty_float(logits, {logits.size(0)});
  Tensor loss = options.reduction == kernels::LossReduction::kNone ? empty_float(logits, {logits.size(0)})
                                                                   : empty_float(logits, {});
  throw_if_error(kernels::cross_entropy(input, index_view("target", target), options, float32_view("loss", loss),
                                        float32_view("log_sum_exp", log_sum_exp)));
  return {loss, log_sum_exp};
}

Tensor cross_entropy_backward(const Tensor& grad_loss, const Tensor& logits, const Tensor& target,
                              const Tensor& log_sum_exp, int64_t ignore_index, double label_smoothing,
                              const std::string& reduction) {
  const kernels::CrossEntropyOptions options = loss_options(ignore_index, label_smoothing, reduction);
  const TensorView input = kernel_float_view("logits", logits);
  Tensor result = result_like(logits);
  throw_if_error(kernels::cross_entropy_backward(
      input, index_view("target", target), float32_view("log_sum_exp", log_sum_exp),
      float32_view("grad_loss", grad_loss), options, kernel_float_view("result", result)));
  return result;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("softmax(Tensor x, int dim=-1) -> Tensor");
  library.def("log_softmax(Tensor x, int dim=-1) -> Tensor");
  library.def(
      "cross_entropy(Tensor logits, Tensor target, int ignore_index=-100, float label_smoothing=0.0, "
      "str reduction=\"mean\") -> (Tensor loss, Tensor log_sum_exp)");
  library.def(
      "cross_entropy_backward(Tensor grad_loss, Tensor logits, Tensor target, Tensor log_sum_exp, "
      "int ignore_index=-100, float label_smoothing=0.0, str reduction=\"mean\") -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("softmax", TORCH_BOX(&qx::torch_bridge::softmax));
  library.impl("log_softmax", TORCH_BOX(&qx::torch_bridge::log_softmax));
  library.impl("cross_entropy", TORCH_BOX(&qx::torch_bridge::cross_entropy));
  library.impl("cross_entropy_backward", TORCH_BOX(&qx::torch_bridge::cross_entropy_backward));
}
