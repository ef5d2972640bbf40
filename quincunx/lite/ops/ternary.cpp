// Choices and combinations of three operands.
#include <string>

#include "quincunx/lite/ops/elementwise.h"
#include "quincunx/lite/ops/families.h"

namespace qx::lite {
namespace {

struct Where {
  template <typename C>
  static C apply(C condition, C x, C y) {
    return condition != C{0} ? x : y;
  }
};
// NaN in x stays, NaN in a bound wins; a lower bound above the upper one gives the upper one.
struct Clamp {
  template <typename C>
  static C apply(C x, C low, C high) {
    if (x != x) return x;
    const C raised = low != low || x < low ? low : x;
    return raised != raised || (high == high && raised <= high) ? raised : high;
  }
};
struct Maximum {
  template <typename C>
  static C apply(C x, C y) {
    return x != x || x > y ? x : y;
  }
};
struct Minimum {
  template <typename C>
  static C apply(C x, C y) {
    return x != x || x < y ? x : y;
  }
};
struct Lerp {
  template <typename C>
  static C apply(C x, C y, C weight) {
    // Exact at both ends.
    return weight < C(0.5) ? x + weight * (y - x) : y - (y - x) * (C{1} - weight);
  }
};
struct MultiplyAdd {
  template <typename C>
  static C apply(C x, C y, C z) {
    return x + y * z;
  }
};
struct DivideAdd {
  template <typename C>
  static C apply(C x, C y, C z) {
    return x + y / z;
  }
};

Status run_where(const Call& call) {
  const Operand condition(call, 0);
  const Operand x(call, 1);
  const Operand y(call, 2);
  return apply_rows(ternary_rows<Where>(), call.result().dtype(), condition.view(), x.view(), y.view(), call.result());
}

// masked_fill(x, mask, value)
Status run_masked_fill(const Call& call) {
  const Operand value(call, 2);
  return apply_rows(ternary_rows<Where>(), call.result().dtype(), call.tensor(1), value.view(), call.tensor(0),
                    call.result());
}

// clamp(x, min, max) where either may be missing.
Status run_clamp(const Call& call) {
  const DType common = call.result().dtype();
  const Operand low(call, 1);
  const Operand high(call, 2);
  if (call.has(1) && call.has(2)) {
    return apply_rows(ternary_rows<Clamp>(), common, call.tensor(0), low.view(), high.view(), call.result());
  }
  if (call.has(1)) return apply_rows(binary_rows<Maximum>(), common, call.tensor(0), low.view(), call.result());
  if (call.has(2)) return apply_rows(binary_rows<Minimum>(), common, call.tensor(0), high.view(), call.result());
  return invalid_argument("min and max: at least one is needed");
}

Status run_clamp_max(const Call& call) {
  const Operand high(call, 1);
  return apply_rows(binary_rows<Minimum>(), call.result().dtype(), call.tensor(0), high.view(), call.result());
}

Status run_hardtanh(const Call& call) {
  const Operand low(call, 1, -1);
  const Operand high(call, 2, 1);
  return apply_rows(ternary_rows<Clamp>(), call.result().dtype(), call.tensor(0), low.view(), high.view(),
                    call.result());
}

Status run_relu6(const Call& call) {
  double low = 0;
  double high = 6;
  QX_ASSIGN_OR_RETURN(const TensorView floor, TensorView::contiguous(&low, DType::kFloat64, {}));
  QX_ASSIGN_OR_RETURN(const TensorView ceiling, TensorView::contiguous(&high, DType::kFloat64, {}));
  return apply_rows(ternary_rows<Clamp>(), call.result().dtype(), call.tensor(0), floor, ceiling, call.result());
}

Status run_lerp(const Call& call) {
  const Operand weight(call, 2);
  return apply_rows({ternary_row<Lerp, float>, ternary_row<Lerp, double>, nullptr}, call.result().dtype(),
                    call.tensor(0), call.tensor(1), weight.view(), call.result());
}

template <typename Functor>
Status run_combination(const Call& call) {
  if (call.real(3, 1) != 1) return unimplemented("value: expected 1, got " + std::to_string(call.real(3)));
  return apply_rows({ternary_row<Functor, float>, ternary_row<Functor, double>, nullptr}, call.result().dtype(),
                    call.tensor(0), call.tensor(1), call.tensor(2), call.result());
}

constexpr Operator kOperators[] = {
    {"aten.where.self", "TSS", run_where, nullptr, true},
    {"aten.where.ScalarOther", "TSS", run_where, nullptr, true},
    {"aten.where.ScalarSelf", "TSS", run_where, nullptr, true},
    {"aten.where.Scalar", "TSS", run_where, nullptr, true},
    {"aten.masked_fill.Scalar", "TTS", run_masked_fill, nullptr, true},
    {"aten.masked_fill.Tensor", "TTS", run_masked_fill, nullptr, true},
    {"aten.clamp.default", "Tgg", run_clamp, nullptr, true},
    {"aten.clamp.Tensor", "Ttt", run_clamp, nullptr, true},
    {"aten.clamp_min.default", "TS", run_clamp, nullptr, true},
    {"aten.clamp_min.Tensor", "TS", run_clamp, nullptr, true},
    {"aten.clamp_max.default", "TS", run_clamp_max, nullptr, true},
    {"aten.clamp_max.Tensor", "TS", run_clamp_max, nullptr, true},
    {"aten.hardtanh.default", "Tgg", run_hardtanh, nullptr, true},
    {"aten.relu6.default", "T", run_relu6, nullptr, true},
    {"aten.lerp.Scalar", "TTS", run_lerp, nullptr, true},
    {"aten.lerp.Tensor", "TTS", run_lerp, nullptr, true},
    {"aten.addcmul.default", "TTTg", run_combination<MultiplyAdd>, nullptr, true},
    {"aten.addcdiv.default", "TTTg", run_combination<DivideAdd>, nullptr, true},
};

}  // namespace

std::span<const Operator> ternary_operators() { return kOperators; }

}  // namespace qx::lite
