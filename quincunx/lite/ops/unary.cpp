// Functions of one tensor, element by element.
#include "quincunx/kernels/elementwise/unary.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "quincunx/kernels/convert/convert.h"
#include "quincunx/lite/ops/elementwise.h"
#include "quincunx/lite/ops/families.h"

namespace qx::lite {
namespace {

// Integers are computed as unsigned ones where a result may wrap.
struct Negate {
  static float apply(float x) { return -x; }
  static double apply(double x) { return -x; }
  static int64_t apply(int64_t x) { return static_cast<int64_t>(0 - static_cast<uint64_t>(x)); }
};
struct Absolute {
  static float apply(float x) { return std::fabs(x); }
  static double apply(double x) { return std::fabs(x); }
  static int64_t apply(int64_t x) { return x < 0 ? Negate::apply(x) : x; }
};
struct Relu {
  template <typename C>
  static C apply(C x) {
    return x < C{0} ? C{0} : x;  // keeps NaN
  }
};
struct Sign {
  template <typename C>
  static C apply(C x) {
    return static_cast<C>((x > C{0}) - (x < C{0}));
  }
};
struct Square {
  static float apply(float x) { return x * x; }
  static double apply(double x) { return x * x; }
  static int64_t apply(int64_t x) { return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x)); }
};
struct BitwiseNot {
  static int64_t apply(int64_t x) { return ~x; }
};
struct LogicalNot {
  template <typename C>
  static C apply(C x) {
    return static_cast<C>(x == C{0});
  }
};
struct IsNan {
  template <typename C>
  static C apply(C x) {
    return static_cast<C>(x != x);
  }
};
struct IsInf {
  template <typename C>
  static C apply(C x) {
    if constexpr (std::is_integral_v<C>) return 0;
    return static_cast<C>(std::fabs(static_cast<double>(x)) == std::numeric_limits<double>::infinity());
  }
};

#define QX_REAL_FUNCTION(Name, expression) \
  struct Name {                            \
    template <typename C>                  \
    static C apply(C x) {                  \
      return static_cast<C>(expression);   \
    }                                      \
  }
QX_REAL_FUNCTION(Exp, std::exp(x));
QX_REAL_FUNCTION(Exp2, std::exp2(x));
QX_REAL_FUNCTION(Expm1, std::expm1(x));
QX_REAL_FUNCTION(Log, std::log(x));
QX_REAL_FUNCTION(Log2, std::log2(x));
QX_REAL_FUNCTION(Log10, std::log10(x));
QX_REAL_FUNCTION(Log1p, std::log1p(x));
QX_REAL_FUNCTION(Sqrt, std::sqrt(x));
QX_REAL_FUNCTION(Rsqrt, C{1} / std::sqrt(x));
QX_REAL_FUNCTION(Reciprocal, C{1} / x);
QX_REAL_FUNCTION(Sin, std::sin(x));
QX_REAL_FUNCTION(Cos, std::cos(x));
QX_REAL_FUNCTION(Tan, std::tan(x));
QX_REAL_FUNCTION(Asin, std::asin(x));
QX_REAL_FUNCTION(Acos, std::acos(x));
QX_REAL_FUNCTION(Atan, std::atan(x));
QX_REAL_FUNCTION(Sinh, std::sinh(x));
QX_REAL_FUNCTION(Cosh, std::cosh(x));
QX_REAL_FUNCTION(Tanh, std::tanh(x));
QX_REAL_FUNCTION(Erf, std::erf(x));
QX_REAL_FUNCTION(Erfc, std::erfc(x));
QX_REAL_FUNCTION(Sigmoid, C{1} / (C{1} + std::exp(-x)));
QX_REAL_FUNCTION(Floor, std::floor(x));
QX_REAL_FUNCTION(Ceil, std::ceil(x));
QX_REAL_FUNCTION(Truncate, std::trunc(x));
QX_REAL_FUNCTION(Round, std::nearbyint(x));  // halves to even, in the rounding mode that every program starts with
QX_REAL_FUNCTION(Fraction, x - std::trunc(x));
#undef QX_REAL_FUNCTION

template <UnaryRows (*kRows)()>
Status run_unary(const Call& call) {
  return apply_rows(kRows(), call.result().dtype(), call.tensor(0), call.result());
}

// Computed in the argument's type, because the result is bool.
template <UnaryRows (*kRows)()>
Status run_predicate(const Call& call) {
  return apply_rows(kRows(), call.tensor(0).dtype(), call.tensor(0), call.result());
}

// Rounding leaves integers alone.
template <UnaryRows (*kRows)()>
Status run_rounding(const Call& call) {
  if (!is_floating_point(call.tensor(0).dtype())) return copy_elements(call.tensor(0), call.result());
  return run_unary<kRows>(call);
}

template <kernels::UnaryFunction kFunction, UnaryRows (*kRows)()>
Status run_vector_function(const Call& call) {
  const TensorView& input = call.tensor(0);
  if (kernels::is_kernel_float(input.dtype()) && input.dtype() == call.result().dtype()) {
    return kernels::apply_unary(kFunction, input, call.result());
  }
  return run_unary<kRows>(call);
}

Status run_bitwise_not(const Call& call) {
  if (call.tensor(0).dtype() == DType::kBool) return run_predicate<unary_rows<LogicalNot>>(call);
  return run_unary<integer_unary_rows<BitwiseNot>>(call);
}

#define QX_ROW(name, function) {"aten." name ".default", "T", function, nullptr, true}
constexpr Operator kOperators[] = {
    QX_ROW("neg", run_unary<unary_rows<Negate>>),
    QX_ROW("abs", run_unary<unary_rows<Absolute>>),
    QX_ROW("relu", run_unary<unary_rows<Relu>>),
    QX_ROW("sign", run_unary<unary_rows<Sign>>),
    QX_ROW("square", run_unary<unary_rows<Square>>),
    QX_ROW("bitwise_not", run_bitwise_not),
    QX_ROW("logical_not", run_predicate<unary_rows<LogicalNot>>),
    QX_ROW("isnan", run_predicate<unary_rows<IsNan>>),
    QX_ROW("isinf", run_predicate<unary_rows<IsInf>>),
    QX_ROW("exp", (run_vector_function<kernels::UnaryFunction::kExp, real_unary_rows<Exp>>)),
    QX_ROW("exp2", run_unary<real_unary_rows<Exp2>>),
    QX_ROW("expm1", run_unary<real_unary_rows<Expm1>>),
    QX_ROW("log", (run_vector_function<kernels::UnaryFunction::kLog, real_unary_rows<Log>>)),
    QX_ROW("log2", run_unary<real_unary_rows<Log2>>),
    QX_ROW("log10", run_unary<real_unary_rows<Log10>>),
    QX_ROW("log1p", run_unary<real_unary_rows<Log1p>>),
    QX_ROW("sqrt", run_unary<real_unary_rows<Sqrt>>),
    QX_ROW("rsqrt", run_unary<real_unary_rows<Rsqrt>>),
    QX_ROW("reciprocal", run_unary<real_unary_rows<Reciprocal>>),
    QX_ROW("sin", run_unary<real_unary_rows<Sin>>),
    QX_ROW("cos", run_unary<real_unary_rows<Cos>>),
    QX_ROW("tan", run_unary<real_unary_rows<Tan>>),
    QX_ROW("asin", run_unary<real_unary_rows<Asin>>),
    QX_ROW("acos", run_unary<real_unary_rows<Acos>>),
    QX_ROW("atan", run_unary<real_unary_rows<Atan>>),
    QX_ROW("sinh", run_unary<real_unary_rows<Sinh>>),
    QX_ROW("cosh", run_unary<real_unary_rows<Cosh>>),
    QX_ROW("tanh", (run_vector_function<kernels::UnaryFunction::kTanh, real_unary_rows<Tanh>>)),
    QX_ROW("erf", (run_vector_function<kernels::UnaryFunction::kErf, real_unary_rows<Erf>>)),
    QX_ROW("erfc", run_unary<real_unary_rows<Erfc>>),
    QX_ROW("sigmoid", (run_vector_function<kernels::UnaryFunction::kSigmoid, real_unary_rows<Sigmoid>>)),
    QX_ROW("floor", run_rounding<real_unary_rows<Floor>>),
    QX_ROW("ceil", run_rounding<real_unary_rows<Ceil>>),
    QX_ROW("trunc", run_rounding<real_unary_rows<Truncate>>),
    QX_ROW("round", run_rounding<real_unary_rows<Round>>),
    QX_ROW("frac", run_rounding<real_unary_rows<Fraction>>),
};
#undef QX_ROW

}  // namespace

std::span<const Operator> unary_operators() { return kOperators; }

}  // namespace qx::lite
