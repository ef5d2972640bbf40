// Activations that take parameters.
#include <cmath>
#include <string>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/elementwise/unary.h"
#include "quincunx/lite/ops/elementwise.h"
#include "quincunx/lite/ops/families.h"

namespace qx::lite {
namespace {

struct Silu {
  template <typename C>
  static C apply(C x) {
    return x / (C{1} + std::exp(-x));
  }
};
struct GeluErf {
  template <typename C>
  static C apply(C x) {
    return C(0.5) * x * (C{1} + std::erf(x * C(0.70710678118654752440)));
  }
};
struct GeluTanh {
  template <typename C>
  static C apply(C x) {
    return C(0.5) * x * (C{1} + std::tanh(C(0.79788456080286535588) * (x + C(0.044715) * x * x * x)));
  }
};
struct Mish {
  template <typename C>
  static C apply(C x) {
    return x * std::tanh(std::log1p(std::exp(x)));
  }
};
struct Clamp01 {
  template <typename C>
  static C sixth(C x) {
    const C shifted = x + C{3};
    return (shifted < C{0} ? C{0} : shifted > C{6} ? C{6} : shifted) / C{6};
  }
};
struct HardSigmoid {
  template <typename C>
  static C apply(C x) {
    return Clamp01::sixth(x);
  }
};
struct HardSwish {
  template <typename C>
  static C apply(C x) {
    return x * Clamp01::sixth(x);
  }
};
struct LeakyRelu {
  template <typename C>
  static C apply(C x, C slope) {
    return x > C{0} ? x : x * slope;
  }
};
struct Elu {
  template <typename C>
  static C apply(C x, C alpha) {
    return x > C{0} ? x : alpha * std::expm1(x);
  }
};
// PyTorch's threshold of 20, above which softplus is the identity in f32, is compared to beta x.
struct Softplus {
  template <typename C>
  static C apply(C x, C beta, C threshold) {
    return x * beta > threshold ? x : std::log1p(std::exp(x * beta)) / beta;
  }
};

Status run_vector(const Call& call, kernels::UnaryFunction function, const UnaryRows& rows) {
  const TensorView& input = call.tensor(0);
  if (kernels::is_kernel_float(input.dtype())) return kernels::apply_unary(function, input, call.result());
  return apply_rows(rows, call.result().dtype(), input, call.result());
}

Status run_silu(const Call& call) { return run_vector(call, kernels::UnaryFunction::kSilu, real_unary_rows<Silu>()); }

Status run_gelu(const Call& call) {
  const std::string_view approximate = call.text(1, "none");
  if (approximate == "none") return run_vector(call, kernels::UnaryFunction::kGeluErf, real_unary_rows<GeluErf>());
  if (approximate == "tanh") return run_vector(call, kernels::UnaryFunction::kGeluTanh, real_unary_rows<GeluTanh>());
  return invalid_argument("approximate: expected 'none' or 'tanh', got '" + std::string(approximate) + "'");
}

template <UnaryRows (*kRows)()>
Status run_unary(const Call& call) {
  return apply_rows(kRows(), call.result().dtype(), call.tensor(0), call.result());
}

Status run_leaky_relu(const Call& call) {
  const Operand slope(call, 1, 0.01);
  return apply_rows(real_binary_rows<LeakyRelu>(), call.result().dtype(), call.tensor(0), slope.view(), call.result());
}

Status run_elu(const Call& call) {
  if (call.real(2, 1) != 1 || call.real(3, 1) != 1) {
    return unimplemented("scale and input_scale: expected 1, got " + std::to_string(call.real(2, 1)) + " and " +
                         std::to_string(call.real(3, 1)));
  }
  const Operand alpha(call, 1, 1);
  return apply_rows(real_binary_rows<Elu>(), call.result().dtype(), call.tensor(0), alpha.view(), call.result());
}

Status run_softplus(const Call& call) {
  const Operand beta(call, 1, 1);
  const Operand threshold(call, 2, 20);
  return apply_rows({ternary_row<Softplus, float>, ternary_row<Softplus, double>, nullptr}, call.result().dtype(),
                    call.tensor(0), beta.view(), threshold.view(), call.result());
}

constexpr Operator kOperators[] = {
    {"aten.silu.default", "T", run_silu, nullptr, true},
    {"aten.gelu.default", "Ts", run_gelu, nullptr, true},
    {"aten.mish.default", "T", run_unary<real_unary_rows<Mish>>, nullptr, true},
    {"aten.hardsigmoid.default", "T", run_unary<real_unary_rows<HardSigmoid>>, nullptr, true},
    {"aten.hardswish.default", "T", run_unary<real_unary_rows<HardSwish>>, nullptr, true},
    {"aten.leaky_relu.default", "Tg", run_leaky_relu, nullptr, true},
    {"aten.elu.default", "Tggg", run_elu, nullptr, true},
    {"aten.softplus.default", "Tgg", run_softplus, nullptr, true},
};

}  // namespace

std::span<const Operator> activation_operators() { return kOperators; }

}  // namespace qx::lite
