// Runs row functions over the operands of a call.
#pragma once

#include "quincunx/lite/ops/call.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {

// A tensor, or a number as a tensor without dimensions. Does not move: the view points into it.
class Operand {
 public:
  // Argument `index` of the call; absent optional arguments become `fallback`.
  Operand(const Call& call, size_t index, double fallback = 0);
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  const TensorView& view() const { return view_; }

 private:
  int64_t integer_ = 0;
  double real_ = 0;
  TensorView view_;
};

// One function for each type that is computed with; null where it is not defined.
template <typename F, typename D, typename I>
struct RowFunctions {
  F on_float = nullptr;
  D on_double = nullptr;
  I on_integer = nullptr;
};
template <typename C>
using UnaryRow = void (*)(const C* x, int64_t count, C* result);
template <typename C>
using BinaryRow = void (*)(const C* x, const C* y, int64_t count, C* result);
template <typename C>
using TernaryRow = void (*)(const C* x, const C* y, const C* z, int64_t count, C* result);
using UnaryRows = RowFunctions<UnaryRow<float>, UnaryRow<double>, UnaryRow<int64_t>>;
using BinaryRows = RowFunctions<BinaryRow<float>, BinaryRow<double>, BinaryRow<int64_t>>;
using TernaryRows = RowFunctions<TernaryRow<float>, TernaryRow<double>, TernaryRow<int64_t>>;

// result = function(operands), computed in the type of `common`.
Status apply_rows(const UnaryRows& rows, DType common, const TensorView& x, const TensorView& result);
Status apply_rows(const BinaryRows& rows, DType common, const TensorView& x, const TensorView& y,
                  const TensorView& result);
Status apply_rows(const TernaryRows& rows, DType common, const TensorView& x, const TensorView& y, const TensorView& z,
                  const TensorView& result);

// Row functions of a functor: UnaryRows relu = unary_rows<Relu>(), where Relu::apply(x) takes each type. Operators are
// templates of such a function and not of its result, which g++ 12 rejects as an argument.
template <typename Functor, typename C>
void unary_row(const C* x, int64_t count, C* result) {
  for (int64_t i = 0; i < count; ++i) result[i] = Functor::apply(x[i]);
}
template <typename Functor, typename C>
void binary_row(const C* x, const C* y, int64_t count, C* result) {
  for (int64_t i = 0; i < count; ++i) result[i] = Functor::apply(x[i], y[i]);
}
template <typename Functor, typename C>
void ternary_row(const C* x, const C* y, const C* z, int64_t count, C* result) {
  for (int64_t i = 0; i < count; ++i) result[i] = Functor::apply(x[i], y[i], z[i]);
}
template <typename Functor>
constexpr UnaryRows unary_rows() {
  return {unary_row<Functor, float>, unary_row<Functor, double>, unary_row<Functor, int64_t>};
}
template <typename Functor>
constexpr UnaryRows real_unary_rows() {
  return {unary_row<Functor, float>, unary_row<Functor, double>, nullptr};
}
template <typename Functor>
constexpr UnaryRows integer_unary_rows() {
  return {nullptr, nullptr, unary_row<Functor, int64_t>};
}
template <typename Functor>
constexpr BinaryRows binary_rows() {
  return {binary_row<Functor, float>, binary_row<Functor, double>, binary_row<Functor, int64_t>};
}
template <typename Functor>
constexpr BinaryRows real_binary_rows() {
  return {binary_row<Functor, float>, binary_row<Functor, double>, nullptr};
}
template <typename Functor>
constexpr BinaryRows integer_binary_rows() {
  return {nullptr, nullptr, binary_row<Functor, int64_t>};
}
template <typename Functor>
constexpr TernaryRows ternary_rows() {
  return {ternary_row<Functor, float>, ternary_row<Functor, double>, ternary_row<Functor, int64_t>};
}

}  // namespace qx::lite
