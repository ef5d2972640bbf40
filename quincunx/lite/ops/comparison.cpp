// Comparisons and logic.
#include <cmath>
#include <cstdint>

#include "quincunx/lite/ops/elementwise.h"
#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/promotion.h"

namespace qx::lite {
namespace {

#define QX_COMPARISON(Name, expression)  \
  struct Name {                          \
    template <typename C>                \
    static C apply(C x, C y) {           \
      return static_cast<C>(expression); \
    }                                    \
  }
QX_COMPARISON(Equal, x == y);
QX_COMPARISON(NotEqual, x != y);
QX_COMPARISON(Less, x < y);
QX_COMPARISON(LessOrEqual, x <= y);
QX_COMPARISON(Greater, x > y);
QX_COMPARISON(GreaterOrEqual, x >= y);
QX_COMPARISON(LogicalAnd, x != C{0} && y != C{0});
QX_COMPARISON(LogicalOr, x != C{0} || y != C{0});
QX_COMPARISON(LogicalXor, (x != C{0}) != (y != C{0}));
QX_COMPARISON(BitwiseAnd, x& y);
QX_COMPARISON(BitwiseOr, x | y);
QX_COMPARISON(BitwiseXor, x ^ y);
#undef QX_COMPARISON
// A shift of all bits or more leaves the sign.
struct ShiftLeft {
  static int64_t apply(int64_t x, int64_t y) {
    return y < 0 || y > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x) << y);
  }
};
struct ShiftRight {
  static int64_t apply(int64_t x, int64_t y) { return x >> (y < 0 || y > 63 ? 63 : y); }
};

// In the type that both operands have in common, because the result is bool.
template <BinaryRows (*kRows)()>
Status run_comparison(const Call& call) {
  const Operand x(call, 0);
  const Operand y(call, 1);
  return apply_rows(kRows(), promoted_dtype(call, 0, 1), x.view(), y.view(), call.result());
}

#define QX_ROWS(name, Functor)                                                           \
  {"aten." name ".Tensor", "SS", run_comparison<binary_rows<Functor>>, nullptr, true}, { \
    "aten." name ".Scalar", "SS", run_comparison<binary_rows<Functor>>, nullptr, true    \
  }
#define QX_INTEGER_ROWS(name, Functor)                                                           \
  {"aten." name ".Tensor", "SS", run_comparison<integer_binary_rows<Functor>>, nullptr, true}, { \
    "aten." name ".Scalar", "SS", run_comparison<integer_binary_rows<Functor>>, nullptr, true    \
  }
#define QX_LOGICAL_ROW(name, Functor) \
  {"aten." name ".default", "SS", run_comparison<binary_rows<Functor>>, nullptr, true}
constexpr auto kShiftLeft = run_comparison<integer_binary_rows<ShiftLeft>>;
constexpr auto kShiftRight = run_comparison<integer_binary_rows<ShiftRight>>;

constexpr Operator kOperators[] = {
    QX_ROWS("eq", Equal),
    QX_ROWS("ne", NotEqual),
    QX_ROWS("lt", Less),
    QX_ROWS("le", LessOrEqual),
    QX_ROWS("gt", Greater),
    QX_ROWS("ge", GreaterOrEqual),
    QX_LOGICAL_ROW("logical_and", LogicalAnd),
    QX_LOGICAL_ROW("logical_or", LogicalOr),
    QX_LOGICAL_ROW("logical_xor", LogicalXor),
    QX_INTEGER_ROWS("bitwise_and", BitwiseAnd),
    QX_INTEGER_ROWS("bitwise_or", BitwiseOr),
    QX_INTEGER_ROWS("bitwise_xor", BitwiseXor),
    {"aten.__and__.Tensor", "SS", run_comparison<integer_binary_rows<BitwiseAnd>>, nullptr, true},
    {"aten.__or__.Tensor", "SS", run_comparison<integer_binary_rows<BitwiseOr>>, nullptr, true},
    {"aten.bitwise_left_shift.Tensor", "SS", kShiftLeft, nullptr, true},
    {"aten.bitwise_left_shift.Tensor_Scalar", "SS", kShiftLeft, nullptr, true},
    {"aten.bitwise_right_shift.Tensor", "SS", kShiftRight, nullptr, true},
    {"aten.bitwise_right_shift.Tensor_Scalar", "SS", kShiftRight, nullptr, true},
};
#undef QX_ROWS
#undef QX_INTEGER_ROWS
#undef QX_LOGICAL_ROW

}  // namespace

std::span<const Operator> comparison_operators() { return kOperators; }

}  // namespace qx::lite
