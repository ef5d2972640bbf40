// Arithmetic of two operands with broadcasting.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "quincunx/lite/ops/elementwise.h"
#include "quincunx/lite/ops/families.h"
#include "quincunx/tile/float_tile.h"

namespace qx::lite {
namespace {

// Integers wrap, which only unsigned ones may do.
int64_t wrap(uint64_t value) { return static_cast<int64_t>(value); }
uint64_t bits(int64_t value) { return static_cast<uint64_t>(value); }

struct Add {
  template <typename C>
  static C apply(C x, C y) {
    if constexpr (std::is_integral_v<C>) return wrap(bits(x) + bits(y));
    return static_cast<C>(x + y);
  }
};
struct Subtract {
  template <typename C>
  static C apply(C x, C y) {
    if constexpr (std::is_integral_v<C>) return wrap(bits(x) - bits(y));
    return static_cast<C>(x - y);
  }
};
struct Multiply {
  template <typename C>
  static C apply(C x, C y) {
    if constexpr (std::is_integral_v<C>) return wrap(bits(x) * bits(y));
    return static_cast<C>(x * y);
  }
};
struct AddScaled {
  template <typename C>
  static C apply(C x, C y, C alpha) {
    return Add::apply(x, Multiply::apply(y, alpha));
  }
};
struct Divide {
  template <typename C>
  static C apply(C x, C y) {
    return x / y;
  }
};
// Division by zero is found before; -1 is apart because the least integer has no negative.
struct DivideTruncated {
  static float apply(float x, float y) { return std::trunc(x / y); }
  static double apply(double x, double y) { return std::trunc(x / y); }
  static int64_t apply(int64_t x, int64_t y) { return y == -1 ? wrap(0 - bits(x)) : x / y; }
};
// Python's definition: the quotient that belongs to the remainder with the divisor's sign.
struct DivideFloor {
  template <typename C>
  static C apply(C x, C y) {
    if constexpr (std::is_integral_v<C>) {
      if (y == -1) return wrap(0 - bits(x));
      const int64_t quotient = x / y;
      return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
    } else {
      if (y == C{0}) return x / y;
      const C remainder = std::fmod(x, y);
      C quotient = (x - remainder) / y;
      if (remainder != C{0} && (y < C{0}) != (remainder < C{0})) quotient -= C{1};
      if (quotient == C{0}) return std::copysign(C{0}, x / y);
      const C whole = std::floor(quotient);
      return quotient - whole > C(0.5) ? whole + C{1} : whole;
    }
  }
};
struct Remainder {
  template <typename C>
  static C apply(C x, C y) {
    if constexpr (std::is_integral_v<C>) {
      if (y == -1) return 0;
      const int64_t remainder = x % y;
      return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
    } else {
      const C remainder = std::fmod(x, y);
      return remainder != C{0} && (remainder < C{0}) != (y < C{0}) ? remainder + y : remainder;
    }
  }
};
struct Fmod {
  static float apply(float x, float y) { return std::fmod(x, y); }
  static double apply(double x, double y) { return std::fmod(x, y); }
  static int64_t apply(int64_t x, int64_t y) { return y == -1 ? 0 : x % y; }
};
struct Maximum {
  template <typename C>
  static C apply(C x, C y) {
    return x != x || x > y ? x : y;  // NaN wins, whichever side it is on
  }
};
struct Minimum {
  template <typename C>
  static C apply(C x, C y) {
    return x != x || x < y ? x : y;
  }
};
struct Power {
  static float apply(float x, float y) { return std::pow(x, y); }
  static double apply(double x, double y) { return std::pow(x, y); }
  static int64_t apply(int64_t x, int64_t y) {
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
    uint64_t result = 1;
    for (uint64_t base = bits(x); y != 0; y >>= 1, base *= base) result *= (y & 1) != 0 ? base : 1;
    return wrap(result);
  }
};
// Rows of floats by the vectors of the machine, other types by `Functor`.
template <tile::Opcode kOpcode>
void vector_row(const float* x, const float* y, int64_t count, float* result) {
  tile::compute_float_row(kOpcode, x, y, count, result);
}
template <typename Functor, tile::Opcode kOpcode>
constexpr BinaryRows vector_rows() {
  return {vector_row<kOpcode>, binary_row<Functor, double>, binary_row<Functor, int64_t>};
}
constexpr BinaryRows divide_rows() { return {vector_row<tile::Opcode::kDiv>, binary_row<Divide, double>, nullptr}; }
constexpr auto kAddRows = vector_rows<Add, tile::Opcode::kAdd>;
constexpr auto kSubtractRows = vector_rows<Subtract, tile::Opcode::kSub>;
constexpr auto kMultiplyRows = vector_rows<Multiply, tile::Opcode::kMul>;
constexpr auto kMaximumRows = vector_rows<Maximum, tile::Opcode::kMax>;
constexpr auto kMinimumRows = vector_rows<Minimum, tile::Opcode::kMin>;

struct Atan2 {
  template <typename C>
  static C apply(C y, C x) {
    return std::atan2(y, x);
  }
};

template <BinaryRows (*kRows)()>
Status run_binary(const Call& call) {
  const Operand x(call, 0);
  const Operand y(call, 1);
  return apply_rows(kRows(), call.result().dtype(), x.view(), y.view(), call.result());
}

// Integers only: what a machine does with a zero divisor is not a value.
Status check_divisor(const TensorView& divisor, DType common) {
  if (compute_type(common) != ComputeType::kInteger) return ok_status();
  const TensorView* operands[] = {&divisor};
  QX_ASSIGN_OR_RETURN(const RowLoop loop, RowLoop::create(operands));
  std::atomic<bool> has_zero = false;
  loop.run([&](const auto& pointers, int64_t count) {
    int64_t buffer[kRowElements];
    const int64_t* row = load_row<int64_t>(divisor.dtype(), pointers[0], loop.stride(0), count, buffer);
    for (int64_t i = 0; i < count; ++i) {
      if (row[i] == 0) has_zero.store(true, std::memory_order_relaxed);
    }
  });
  return has_zero.load() ? invalid_argument("division of integers by zero") : ok_status();
}

template <BinaryRows (*kRows)()>
Status run_division(const Call& call) {
  const Operand x(call, 0);
  const Operand y(call, 1);
  QX_RETURN_IF_ERROR(check_divisor(y.view(), call.result().dtype()));
  return apply_rows(kRows(), call.result().dtype(), x.view(), y.view(), call.result());
}

Status run_divide_with_mode(const Call& call) {
  const std::string_view mode = call.text(2, "none");
  if (mode == "none") return run_binary<divide_rows>(call);
  if (mode == "trunc") return run_division<binary_rows<DivideTruncated>>(call);
  if (mode == "floor") return run_division<binary_rows<DivideFloor>>(call);
  return invalid_argument("rounding_mode: expected None, 'trunc' or 'floor', got '" + std::string(mode) + "'");
}

bool is_one(const Number& number) { return number.value == 1; }

template <BinaryRows (*kRows)(), int kSign>
Status run_add(const Call& call) {
  if (is_one(call.number(2, 1))) return run_binary<kRows>(call);
  const Operand x(call, 0);
  const Operand y(call, 1);
  Number alpha = call.number(2, 1);
  double real = kSign * alpha.value;
  int64_t integer = kSign * alpha.integer;
  const bool is_real = alpha.kind == Number::Kind::kFloat;
  QX_ASSIGN_OR_RETURN(const TensorView scale,
                      TensorView::contiguous(is_real ? static_cast<void*>(&real) : static_cast<void*>(&integer),
                                             is_real ? DType::kFloat64 : DType::kInt64, {}));
  return apply_rows(ternary_rows<AddScaled>(), call.result().dtype(), x.view(), y.view(), scale, call.result());
}

// rsub(x, y) = y - x.
Status run_reverse_subtract(const Call& call) {
  if (!is_one(call.number(2, 1))) return unimplemented("alpha: expected 1, got " + std::to_string(call.real(2)));
  const Operand x(call, 0);
  const Operand y(call, 1);
  return apply_rows(kSubtractRows(), call.result().dtype(), y.view(), x.view(), call.result());
}

// The exponents that occur most have exact or cheaper forms, the ones that PyTorch uses.
struct Squared {
  template <typename C>
  static C apply(C x) {
    return x * x;
  }
};
struct Cubed {
  template <typename C>
  static C apply(C x) {
    return x * x * x;
  }
};
struct SquareRoot {
  template <typename C>
  static C apply(C x) {
    return std::sqrt(x);
  }
};

Status run_power_of_number(const Call& call) {
  const double exponent = call.real(1);
  const DType common = call.result().dtype();
  if (is_floating_point(common)) {
    if (exponent == 2) return apply_rows(real_unary_rows<Squared>(), common, call.tensor(0), call.result());
    if (exponent == 3) return apply_rows(real_unary_rows<Cubed>(), common, call.tensor(0), call.result());
    if (exponent == 0.5) return apply_rows(real_unary_rows<SquareRoot>(), common, call.tensor(0), call.result());
  } else if (exponent < 0) {
    return invalid_argument("exponent: integers to a negative power are not allowed, got " + std::to_string(exponent));
  }
  return run_binary<binary_rows<Power>>(call);
}

constexpr auto kAdd = run_add<kAddRows, 1>;
constexpr auto kSubtract = run_add<kSubtractRows, -1>;
constexpr auto kMultiply = run_binary<kMultiplyRows>;
constexpr auto kDivide = run_binary<divide_rows>;
constexpr auto kFloorDivide = run_division<binary_rows<DivideFloor>>;
constexpr auto kRemainder = run_division<binary_rows<Remainder>>;
constexpr auto kFmod = run_division<binary_rows<Fmod>>;
constexpr auto kPower = run_binary<binary_rows<Power>>;

constexpr Operator kOperators[] = {
    {"aten.add.Tensor", "SSg", kAdd, nullptr, true},
    {"aten.add.Scalar", "SSg", kAdd, nullptr, true},
    {"aten.sub.Tensor", "SSg", kSubtract, nullptr, true},
    {"aten.sub.Scalar", "SSg", kSubtract, nullptr, true},
    {"aten.rsub.Scalar", "SSg", run_reverse_subtract, nullptr, true},
    {"aten.rsub.Tensor", "SSg", run_reverse_subtract, nullptr, true},
    {"aten.mul.Tensor", "SS", kMultiply, nullptr, true},
    {"aten.mul.Scalar", "SS", kMultiply, nullptr, true},
    {"aten.div.Tensor", "SS", kDivide, nullptr, true},
    {"aten.div.Scalar", "SS", kDivide, nullptr, true},
    {"aten.div.Tensor_mode", "SSs", run_divide_with_mode, nullptr, true},
    {"aten.div.Scalar_mode", "SSs", run_divide_with_mode, nullptr, true},
    {"aten.true_divide.Tensor", "SS", kDivide, nullptr, true},
    {"aten.floor_divide.default", "SS", kFloorDivide, nullptr, true},
    {"aten.floor_divide.Scalar", "SS", kFloorDivide, nullptr, true},
    {"aten.remainder.Tensor", "SS", kRemainder, nullptr, true},
    {"aten.remainder.Scalar", "SS", kRemainder, nullptr, true},
    {"aten.remainder.Scalar_Tensor", "SS", kRemainder, nullptr, true},
    {"aten.fmod.Tensor", "SS", kFmod, nullptr, true},
    {"aten.fmod.Scalar", "SS", kFmod, nullptr, true},
    {"aten.maximum.default", "SS", run_binary<kMaximumRows>, nullptr, true},
    {"aten.minimum.default", "SS", run_binary<kMinimumRows>, nullptr, true},
    {"aten.max.other", "SS", run_binary<kMaximumRows>, nullptr, true},
    {"aten.min.other", "SS", run_binary<kMinimumRows>, nullptr, true},
    {"aten.pow.Tensor_Scalar", "Tn", run_power_of_number, nullptr, true},
    {"aten.pow.Tensor_Tensor", "SS", kPower, nullptr, true},
    {"aten.pow.Scalar", "SS", kPower, nullptr, true},
    {"aten.atan2.default", "SS", run_binary<real_binary_rows<Atan2>>, nullptr, true},
};

}  // namespace

std::span<const Operator> binary_operators() { return kOperators; }

}  // namespace qx::lite
