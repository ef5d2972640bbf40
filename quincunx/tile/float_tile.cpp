#include "quincunx/tile/float_tile.h"

#include <cmath>
#include <limits>

#include "quincunx/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/tile/float_tile.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_storage-inl.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::tile {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace math = qx::kernels::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

#define QX_UNARY(Name, expression)             \
  struct Name {                                \
    static HWY_INLINE Vector Apply(Vector x) { \
      const Tag d;                             \
      (void)d;                                 \
      return expression;                       \
    }                                          \
  }
QX_UNARY(Neg, hn::Neg(x));
QX_UNARY(Abs, hn::Abs(x));
QX_UNARY(Exp, math::Exp(d, x));
QX_UNARY(Log, math::Log(d, x));
QX_UNARY(Sqrt, hn::Sqrt(x));
QX_UNARY(Rsqrt, hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)));
QX_UNARY(Reciprocal, hn::Div(hn::Set(d, 1.0f), x));
QX_UNARY(Tanh, math::Tanh(d, x));
QX_UNARY(Erf, math::Erf(d, x));
QX_UNARY(Sigmoid, math::Sigmoid(d, x));
#undef QX_UNARY

#define QX_BINARY(Name, expression)                                           \
  struct Name {                                                               \
    static HWY_INLINE Vector Apply(Vector a, Vector b) { return expression; } \
  }
QX_BINARY(Add, hn::Add(a, b));
QX_BINARY(Sub, hn::Sub(a, b));
QX_BINARY(Mul, hn::Mul(a, b));
QX_BINARY(Div, hn::Div(a, b));
// NaN wins, as in PyTorch.
QX_BINARY(Max, hn::IfThenElse(hn::Eq(a, a), hn::IfThenElse(hn::Gt(a, b), a, b), a));
QX_BINARY(Min, hn::IfThenElse(hn::Eq(a, a), hn::IfThenElse(hn::Lt(a, b), a, b), a));
#undef QX_BINARY

#define QX_COMPARISON(Name, expression)                                              \
  struct Name {                                                                      \
    static HWY_INLINE hn::Mask<Tag> Apply(Vector a, Vector b) { return expression; } \
  }
QX_COMPARISON(Eq, hn::Eq(a, b));
QX_COMPARISON(Ne, hn::Not(hn::Eq(a, b)));  // Highway 1.0.3's Ne is false for NaN
QX_COMPARISON(Lt, hn::Lt(a, b));
QX_COMPARISON(Le, hn::Le(a, b));
QX_COMPARISON(Gt, hn::Gt(a, b));
QX_COMPARISON(Ge, hn::Ge(a, b));
#undef QX_COMPARISON

template <class Op>
HWY_INLINE void UnaryRow(const float* a, int64_t count, float* result) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Op::Apply(hn::LoadU(d, a + i)), d, result + i);
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) math::StoreFloatTail(Op::Apply(math::LoadFloatTail(d, a + i, rest)), d, result + i, rest);
}

// kSame: the operand is one number for the whole row.
template <class Op, bool kSameA, bool kSameB>
HWY_INLINE void BinaryRow(const float* a, const float* b, int64_t count, float* result) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector one_a = hn::Set(d, *a);
  const Vector one_b = hn::Set(d, *b);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Vector x = kSameA ? one_a : hn::LoadU(d, a + i);
    const Vector y = kSameB ? one_b : hn::LoadU(d, b + i);
    hn::StoreU(Op::Apply(x, y), d, result + i);
  }
  const auto rest = static_cast<size_t>(count - i);
  if (rest == 0) return;
  const Vector x = kSameA ? one_a : math::LoadFloatTail(d, a + i, rest);
  const Vector y = kSameB ? one_b : math::LoadFloatTail(d, b + i, rest);
  math::StoreFloatTail(Op::Apply(x, y), d, result + i, rest);
}

template <class Op>
void UnaryTile(const FloatOperand& a, const TileSize& size, float* result, int64_t row_stride) {
  for (int64_t row = 0; row < size.rows; ++row) {
    const float* x = a.data + row * a.row_stride;
    float* y = result + row * row_stride;
    if (a.column_stride == 1) {
      UnaryRow<Op>(x, size.columns, y);
    } else {
      UnaryRow<Op>(x, 1, y);
      for (int64_t i = 1; i < size.columns; ++i) y[i] = y[0];
    }
  }
}

template <class Op>
void BinaryTile(const FloatOperand& a, const FloatOperand& b, const TileSize& size, float* result, int64_t row_stride) {
  for (int64_t row = 0; row < size.rows; ++row) {
    const float* x = a.data + row * a.row_stride;
    const float* y = b.data + row * b.row_stride;
    float* z = result + row * row_stride;
    if (a.column_stride == 1 && b.column_stride == 1) {
      BinaryRow<Op, false, false>(x, y, size.columns, z);
    } else if (a.column_stride == 1) {
      BinaryRow<Op, false, true>(x, y, size.columns, z);
    } else if (b.column_stride == 1) {
      BinaryRow<Op, true, false>(x, y, size.columns, z);
    } else {
      BinaryRow<Op, true, true>(x, y, size.columns, z);
    }
  }
}

HWY_INLINE Vector LoadOperand(const float* p, int64_t column_stride, int64_t i, size_t count) {
  const Tag d;
  if (column_stride == 0) return hn::Set(d, *p);
  return count == hn::Lanes(d) ? hn::LoadU(d, p + i) : math::LoadFloatTail(d, p + i, count);
}

template <class Op>
void CompareTile(const FloatOperand& a, const FloatOperand& b, const TileSize& size, uint8_t* result) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  const hn::Rebind<uint8_t, Tag> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < size.rows; ++row) {
    const float* x = a.data + row * a.row_stride;
    const float* y = b.data + row * b.row_stride;
    uint8_t* z = result + row * size.columns;
    for (int64_t i = 0; i < size.columns; i += lanes) {
      const int64_t count = HWY_MIN(lanes, size.columns - i);
      const auto filled = static_cast<size_t>(count);
      const auto mask =
          Op::Apply(LoadOperand(x, a.column_stride, i, filled), LoadOperand(y, b.column_stride, i, filled));
      const auto ones = hn::IfThenElseZero(hn::RebindMask(di, mask), hn::Set(di, 1));
      uint8_t bytes[hn::MaxLanes(Tag())];
      hn::StoreU(hn::DemoteTo(d8, ones), d8, bytes);
      for (int64_t k = 0; k < count; ++k) z[i + k] = bytes[k];
    }
  }
}

void SelectTile(const uint8_t* condition, const FloatOperand& a, const FloatOperand& b, const TileSize& size,
                float* result, int64_t row_stride) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  const hn::Rebind<uint8_t, Tag> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < size.rows; ++row) {
    const float* x = a.data + row * a.row_stride;
    const float* y = b.data + row * b.row_stride;
    for (int64_t i = 0; i < size.columns; i += lanes) {
      const int64_t count = HWY_MIN(lanes, size.columns - i);
      const auto filled = static_cast<size_t>(count);
      uint8_t bytes[hn::MaxLanes(Tag())] = {};
      for (int64_t k = 0; k < count; ++k) bytes[k] = condition[row * size.columns + i + k];
      const auto wide = hn::PromoteTo(di, hn::LoadU(d8, bytes));
      const auto mask = hn::RebindMask(d, hn::Ne(wide, hn::Zero(di)));
      const Vector chosen =
          hn::IfThenElse(mask, LoadOperand(x, a.column_stride, i, filled), LoadOperand(y, b.column_stride, i, filled));
      float* z = result + row * row_stride + i;
      if (count == lanes) {
        hn::StoreU(chosen, d, z);
      } else {
        math::StoreFloatTail(chosen, d, z, filled);
      }
    }
  }
}

// Four chains hide the latency of an addition.
HWY_INLINE double SumRow(const float* x, int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Add(a, hn::PromoteTo(d, hn::LoadU(df, x + i)));
    b = hn::Add(b, hn::PromoteTo(d, hn::LoadU(df, x + i + lanes)));
    c = hn::Add(c, hn::PromoteTo(d, hn::LoadU(df, x + i + 2 * lanes)));
    e = hn::Add(e, hn::PromoteTo(d, hn::LoadU(df, x + i + 3 * lanes)));
  }
  for (; i + lanes <= count; i += lanes) a = hn::Add(a, hn::PromoteTo(d, hn::LoadU(df, x + i)));
  double rest = 0;
  for (; i < count; ++i) rest += static_cast<double>(x[i]);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e)))) + rest;
}

template <class Op>
HWY_INLINE float ExtremeRow(const float* x, int64_t count, float start) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector a = hn::Set(d, start), b = a;
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    a = Op::Apply(a, hn::LoadU(d, x + i));
    b = Op::Apply(b, hn::LoadU(d, x + i + lanes));
  }
  a = Op::Apply(a, b);
  HWY_ALIGN float values[hn::MaxLanes(Tag())];
  hn::Store(a, d, values);
  Vector result = hn::Set(d, values[0]);
  for (int64_t k = 1; k < lanes; ++k) result = Op::Apply(result, hn::Set(d, values[k]));
  for (; i < count; ++i) result = Op::Apply(result, hn::Set(d, x[i]));
  return hn::GetLane(result);
}

void ReduceTile(Opcode opcode, const FloatOperand& a, const TileSize& size, double* totals) {
  for (int64_t row = 0; row < size.rows; ++row) {
    const float* x = a.data + row * a.row_stride;
    // A value that is the same all along the row counts once for each column.
    const int64_t count = a.column_stride == 1 ? size.columns : HWY_MIN(size.columns, int64_t{1});
    const auto known = static_cast<float>(totals[row]);
    if (opcode == Opcode::kReduceMax) {
      totals[row] = static_cast<double>(ExtremeRow<Max>(x, count, known));
    } else if (opcode == Opcode::kReduceMin) {
      totals[row] = static_cast<double>(ExtremeRow<Min>(x, count, known));
    } else if (a.column_stride == 1) {
      totals[row] += SumRow(x, count);
    } else if (count == 1) {
      totals[row] += static_cast<double>(*x) * static_cast<double>(size.columns);
    }
  }
}

void ComputeTile(Opcode opcode, const FloatOperand& a, const FloatOperand& b, const TileSize& size, float* result,
                 int64_t row_stride) {
  switch (opcode) {
    case Opcode::kNeg: return UnaryTile<Neg>(a, size, result, row_stride);
    case Opcode::kAbs: return UnaryTile<Abs>(a, size, result, row_stride);
    case Opcode::kExp: return UnaryTile<Exp>(a, size, result, row_stride);
    case Opcode::kLog: return UnaryTile<Log>(a, size, result, row_stride);
    case Opcode::kSqrt: return UnaryTile<Sqrt>(a, size, result, row_stride);
    case Opcode::kRsqrt: return UnaryTile<Rsqrt>(a, size, result, row_stride);
    case Opcode::kReciprocal: return UnaryTile<Reciprocal>(a, size, result, row_stride);
    case Opcode::kTanh: return UnaryTile<Tanh>(a, size, result, row_stride);
    case Opcode::kErf: return UnaryTile<Erf>(a, size, result, row_stride);
    case Opcode::kSigmoid: return UnaryTile<Sigmoid>(a, size, result, row_stride);
    case Opcode::kAdd: return BinaryTile<Add>(a, b, size, result, row_stride);
    case Opcode::kSub: return BinaryTile<Sub>(a, b, size, result, row_stride);
    case Opcode::kMul: return BinaryTile<Mul>(a, b, size, result, row_stride);
    case Opcode::kDiv: return BinaryTile<Div>(a, b, size, result, row_stride);
    case Opcode::kMax: return BinaryTile<Max>(a, b, size, result, row_stride);
    case Opcode::kMin: return BinaryTile<Min>(a, b, size, result, row_stride);
    default: return;
  }
}

void ComparisonTile(Opcode opcode, const FloatOperand& a, const FloatOperand& b, const TileSize& size,
                    uint8_t* result) {
  switch (opcode) {
    case Opcode::kIsNan: return CompareTile<Ne>(a, a, size, result);
    case Opcode::kEq: return CompareTile<Eq>(a, b, size, result);
    case Opcode::kNe: return CompareTile<Ne>(a, b, size, result);
    case Opcode::kLt: return CompareTile<Lt>(a, b, size, result);
    case Opcode::kLe: return CompareTile<Le>(a, b, size, result);
    case Opcode::kGt: return CompareTile<Gt>(a, b, size, result);
    default: return CompareTile<Ge>(a, b, size, result);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::tile
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::tile {

HWY_EXPORT(ComputeTile);
HWY_EXPORT(ComparisonTile);
HWY_EXPORT(SelectTile);
HWY_EXPORT(ReduceTile);

namespace {

// What no vector kernel has: the C library's, element by element.
using ScalarFunction = float (*)(float a, float b);
ScalarFunction scalar_function(Opcode opcode) {
  switch (opcode) {
    case Opcode::kSin: return [](float a, float) { return std::sin(a); };
    case Opcode::kCos: return [](float a, float) { return std::cos(a); };
    case Opcode::kFloor: return [](float a, float) { return std::floor(a); };
    case Opcode::kCeil: return [](float a, float) { return std::ceil(a); };
    case Opcode::kRound: return [](float a, float) { return std::nearbyint(a); };
    case Opcode::kPow: return [](float a, float b) { return std::pow(a, b); };
    default: return nullptr;
  }
}

bool walks_as_one(const FloatOperand& operand, int64_t columns) {
  const bool dense = operand.column_stride == 1 && operand.row_stride == columns;
  return dense || (operand.column_stride == 0 && operand.row_stride == 0);
}

}  // namespace

void compute_float(Opcode opcode, const FloatOperand& a, const FloatOperand& b, const TileSize& size, float* result,
                   int64_t row_stride) {
  if (size.rows == 0 || size.columns == 0) return;
  const FloatOperand& second = num_operands(opcode) == 1 ? a : b;
  if (const ScalarFunction function = scalar_function(opcode); function != nullptr) {
    for (int64_t row = 0; row < size.rows; ++row) {
      for (int64_t i = 0; i < size.columns; ++i) {
        result[row * row_stride + i] = function(a.data[row * a.row_stride + i * a.column_stride],
                                                second.data[row * second.row_stride + i * second.column_stride]);
      }
    }
    return;
  }
  TileSize walked = size;
  if (size.rows > 1 && row_stride == size.columns && walks_as_one(a, size.columns) &&
      walks_as_one(second, size.columns)) {
    walked = {1, size.rows * size.columns};
  }
  HWY_DYNAMIC_DISPATCH(ComputeTile)(opcode, a, second, walked, result, row_stride);
}

void compare_float(Opcode opcode, const FloatOperand& a, const FloatOperand& b, const TileSize& size, uint8_t* result) {
  HWY_DYNAMIC_DISPATCH(ComparisonTile)(opcode, a, b, size, result);
}

void select_float(const uint8_t* condition, const FloatOperand& a, const FloatOperand& b, const TileSize& size,
                  float* result, int64_t row_stride) {
  HWY_DYNAMIC_DISPATCH(SelectTile)(condition, a, b, size, result, row_stride);
}

void reduce_float(Opcode opcode, const FloatOperand& a, const TileSize& size, double* totals) {
  HWY_DYNAMIC_DISPATCH(ReduceTile)(opcode, a, size, totals);
}

void compute_float_row(Opcode opcode, const float* a, const float* b, int64_t count, float* result) {
  compute_float(opcode, {a, 0, 1}, {b, 0, 1}, {1, count}, result, count);
}

}  // namespace qx::tile
#endif  // HWY_ONCE
