// torch.ops.quincunx.newton_schulz
#include "quincunx/kernels/newton_schulz/newton_schulz.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "quincunx/torch/huge_pages.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

std::vector<kernels::NewtonSchulzStep> steps_from(const std::vector<double>& flat) {
  if (flat.size() % 3 != 0) {
    throw_if_error(invalid_argument("coefficients: expected triples (a, b, c) in one flat list, got " +
                                    std::to_string(flat.size()) + " numbers"));
  }
  std::vector<kernels::NewtonSchulzStep> steps;
  for (size_t i = 0; i < flat.size(); i += 3) {
    steps.push_back({static_cast<float>(flat[i]), static_cast<float>(flat[i + 1]), static_cast<float>(flat[i + 2])});
  }
  return steps;
}

// x: float32 [rows, cols] or [batch, rows, cols]; the result is contiguous.
Tensor newton_schulz(const Tensor& x, const std::vector<double>& coefficients, double eps, const std::string& form) {
  const TensorView input = float32_view("x", x);
  const std::vector<kernels::NewtonSchulzStep> steps = steps_from(coefficients);
  Tensor result = with_huge_pages(torch::stable::new_empty(x, x.sizes()));
  kernels::NewtonSchulzOptions options;
  options.coefficients = steps;
  options.eps = static_cast<float>(eps);
  options.form = value_or_throw(kernels::newton_schulz_form_from_name(form));
  throw_if_error(kernels::newton_schulz(input, float32_view("result", result), options));
  return result;
}

// The triples of a named set as one flat list.
std::vector<double> newton_schulz_coefficients(const std::string& name, int64_t num_steps) {
  const int steps = static_cast<int>(std::clamp<int64_t>(num_steps, 0, 1 << 20));
  std::vector<double> flat;
  for (const auto& step : value_or_throw(kernels::newton_schulz_coefficients(name, steps))) {
    flat.insert(flat.end(), {step.a, step.b, step.c});
  }
  return flat;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("newton_schulz(Tensor x, float[] coefficients, float eps, str form) -> Tensor");
  library.def("newton_schulz_coefficients(str name, int num_steps) -> float[]");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("newton_schulz", TORCH_BOX(&qx::torch_bridge::newton_schulz));
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CompositeExplicitAutograd, library) {
  library.impl("newton_schulz_coefficients", TORCH_BOX(&qx::torch_bridge::newton_schulz_coefficients));
}
