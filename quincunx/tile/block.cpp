#include "quincunx/tile/block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quincunx/base/check.h"
#include "quincunx/kernels/convert/convert.h"

namespace qx::tile {
namespace {

template <typename T, typename F>
void map(const void* a, int64_t count, void* out, const F& f) {
  const auto* x = static_cast<const T*>(a);
  auto* y = static_cast<decltype(f(T{}))*>(out);
  for (int64_t i = 0; i < count; ++i) y[i] = f(x[i]);
}

template <typename T, typename F>
void zip(const void* a, const void* b, int64_t count, void* out, const F& f) {
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  auto* z = static_cast<decltype(f(T{}, T{}))*>(out);
  for (int64_t i = 0; i < count; ++i) z[i] = f(x[i], y[i]);
}

template <typename To, typename From>
void copy_strided(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t count) {
  const auto* x = static_cast<const From*>(from);
  auto* y = static_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) y[i * to_stride] = static_cast<To>(x[i * from_stride]);
}

// Integers wrap around at the width of their dtype.
int64_t wrapped(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kInt32: return static_cast<int32_t>(value);
    case DType::kUInt8: return static_cast<uint8_t>(value);
    case DType::kBool: return value != 0;
    default: return value;
  }
}

int64_t truncated(DType dtype, double value) {
  if (dtype == DType::kBool) return value != 0;  // NaN is true
  if (std::isnan(value)) return 0;
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
  if (dtype == DType::kInt32) low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  if (dtype == DType::kUInt8) low = 0, high = std::numeric_limits<uint8_t>::max();
  if (value <= static_cast<double>(low)) return low;
  if (value >= static_cast<double>(high)) return high;
  return static_cast<int64_t>(value);
}

float rounded(DType dtype, float value) {
  if (dtype == DType::kBFloat16) return static_cast<float>(BFloat16(value));
  if (dtype == DType::kFloat16) return static_cast<float>(Float16(value));
  return value;
}

// NaN wins, as in PyTorch.
template <typename T>
T larger(T a, T b) {
  return a > b || a != a ? a : b;
}
template <typename T>
T smaller(T a, T b) {
  return a < b || a != a ? a : b;
}

template <typename T>
bool compare_block(Opcode opcode, const void* a, const void* b, int64_t count, void* out) {
  const auto with = [&](const auto& f) {
    zip<T>(a, b, count, out, [&](T x, T y) { return static_cast<uint8_t>(f(x, y)); });
    return true;
  };
  switch (opcode) {
    case Opcode::kEq: return with([](T x, T y) { return x == y; });
    case Opcode::kNe: return with([](T x, T y) { return x != y; });
    case Opcode::kLt: return with([](T x, T y) { return x < y; });
    case Opcode::kLe: return with([](T x, T y) { return x <= y; });
    case Opcode::kGt: return with([](T x, T y) { return x > y; });
    case Opcode::kGe: return with([](T x, T y) { return x >= y; });
    default: return false;
  }
}

template <typename T>
void select_block(const void* condition, const void* b, const void* c, int64_t count, void* out) {
  const auto* which = static_cast<const uint8_t*>(condition);
  const auto* x = static_cast<const T*>(b);
  const auto* y = static_cast<const T*>(c);
  auto* z = static_cast<T*>(out);
  for (int64_t i = 0; i < count; ++i) z[i] = which[i] != 0 ? x[i] : y[i];
}

void double_unary(Opcode opcode, const void* a, int64_t count, void* out) {
  const auto with = [&](const auto& f) { map<double>(a, count, out, f); };
  switch (opcode) {
    case Opcode::kNeg: return with([](double x) { return -x; });
    case Opcode::kAbs: return with([](double x) { return std::fabs(x); });
    case Opcode::kExp: return with([](double x) { return std::exp(x); });
    case Opcode::kLog: return with([](double x) { return std::log(x); });
    case Opcode::kSqrt: return with([](double x) { return std::sqrt(x); });
    case Opcode::kRsqrt: return with([](double x) { return 1.0 / std::sqrt(x); });
    case Opcode::kReciprocal: return with([](double x) { return 1.0 / x; });
    case Opcode::kTanh: return with([](double x) { return std::tanh(x); });
    case Opcode::kErf: return with([](double x) { return std::erf(x); });
    case Opcode::kSigmoid: return with([](double x) { return 1.0 / (1.0 + std::exp(-x)); });
    case Opcode::kSin: return with([](double x) { return std::sin(x); });
    case Opcode::kCos: return with([](double x) { return std::cos(x); });
    case Opcode::kFloor: return with([](double x) { return std::floor(x); });
    case Opcode::kCeil: return with([](double x) { return std::ceil(x); });
    case Opcode::kRound: return with([](double x) { return std::nearbyint(x); });
    case Opcode::kIsNan: return with([](double x) { return static_cast<uint8_t>(x != x); });
    default: QX_CHECK_MESSAGE(false, opcode_name(opcode));
  }
}

void double_binary(Opcode opcode, const void* a, const void* b, int64_t count, void* out) {
  const auto with = [&](const auto& f) { zip<double>(a, b, count, out, f); };
  switch (opcode) {
    case Opcode::kAdd: return with([](double x, double y) { return x + y; });
    case Opcode::kSub: return with([](double x, double y) { return x - y; });
    case Opcode::kMul: return with([](double x, double y) { return x * y; });
    case Opcode::kDiv: return with([](double x, double y) { return x / y; });
    case Opcode::kPow: return with([](double x, double y) { return std::pow(x, y); });
    case Opcode::kMax: return with(larger<double>);
    case Opcode::kMin: return with(smaller<double>);
    default: QX_CHECK_MESSAGE(false, opcode_name(opcode));
  }
}

// T: int64_t, or uint8_t for bool.
template <typename T>
void integer_block(const Instruction& instruction, const void* a, const void* b, int64_t count, void* out) {
  const DType dtype = instruction.dtype;
  const auto one = [&](const auto& f) {
    map<T>(a, count, out,
           [&](T x) { return static_cast<T>(wrapped(dtype, static_cast<int64_t>(f(static_cast<uint64_t>(x))))); });
  };
  const auto two = [&](const auto& f) {
    zip<T>(a, b, count, out, [&](T x, T y) {
      return static_cast<T>(
          wrapped(dtype, static_cast<int64_t>(f(static_cast<uint64_t>(x), static_cast<uint64_t>(y)))));
    });
  };
  switch (instruction.opcode) {
    case Opcode::kNeg: return one([](uint64_t x) { return 0 - x; });
    case Opcode::kAbs: return one([](uint64_t x) { return static_cast<int64_t>(x) < 0 ? 0 - x : x; });
    case Opcode::kNot: return one([](uint64_t x) { return static_cast<uint64_t>(x == 0); });
    case Opcode::kAdd: return two([](uint64_t x, uint64_t y) { return x + y; });
    case Opcode::kSub: return two([](uint64_t x, uint64_t y) { return x - y; });
    case Opcode::kMul: return two([](uint64_t x, uint64_t y) { return x * y; });
    case Opcode::kAnd: return two([](uint64_t x, uint64_t y) { return x & y; });
    case Opcode::kOr: return two([](uint64_t x, uint64_t y) { return x | y; });
    case Opcode::kMax: return zip<T>(a, b, count, out, larger<T>);
    case Opcode::kMin: return zip<T>(a, b, count, out, smaller<T>);
    default: QX_CHECK_MESSAGE(false, opcode_name(instruction.opcode));
  }
}

template <typename T>
void typed_block(const Instruction& instruction, const void* a, const void* b, int64_t count, void* out) {
  if (compare_block<T>(instruction.opcode, a, b, count, out)) return;
  if constexpr (std::is_integral_v<T>) {
    integer_block<T>(instruction, a, b, count, out);
  } else if (num_operands(instruction.opcode) == 1) {
    double_unary(instruction.opcode, a, count, out);
  } else {
    double_binary(instruction.opcode, a, b, count, out);
  }
}

template <typename From>
void cast_from(DType to, const void* a, int64_t count, void* out) {
  const auto integer = [&](From x) {
    if constexpr (std::is_integral_v<From>) return wrapped(to, static_cast<int64_t>(x));
    return truncated(to, static_cast<double>(x));
  };
  switch (lane_of(to)) {
    case Lane::kFloat: return map<From>(a, count, out, [&](From x) { return rounded(to, static_cast<float>(x)); });
    case Lane::kDouble: return map<From>(a, count, out, [](From x) { return static_cast<double>(x); });
    case Lane::kInteger: return map<From>(a, count, out, integer);
    case Lane::kBool: return map<From>(a, count, out, [&](From x) { return static_cast<uint8_t>(integer(x)); });
  }
}

}  // namespace

Lane lane_of(DType dtype) {
  if (dtype == DType::kFloat64) return Lane::kDouble;
  if (dtype == DType::kBool) return Lane::kBool;
  return is_floating_point(dtype) ? Lane::kFloat : Lane::kInteger;
}

int64_t lane_bytes(Lane lane) {
  switch (lane) {
    case Lane::kFloat: return 4;
    case Lane::kBool: return 1;
    default: return 8;
  }
}

void load_block(DType dtype, const void* address, int64_t stride, int64_t count, void* out) {
  switch (dtype) {
    case DType::kFloat64: return copy_strided<double, double>(address, stride, out, 1, count);
    case DType::kBool: return copy_strided<uint8_t, bool>(address, stride, out, 1, count);
    case DType::kUInt8: return copy_strided<int64_t, uint8_t>(address, stride, out, 1, count);
    case DType::kInt32: return copy_strided<int64_t, int32_t>(address, stride, out, 1, count);
    case DType::kInt64: return copy_strided<int64_t, int64_t>(address, stride, out, 1, count);
    default: return kernels::load_row_as_f32(dtype, address, stride, count, static_cast<float*>(out));
  }
}

void store_block(DType dtype, const void* values, int64_t count, void* address, int64_t stride) {
  switch (dtype) {
    case DType::kFloat64: return copy_strided<double, double>(values, 1, address, stride, count);
    case DType::kBool: return copy_strided<bool, uint8_t>(values, 1, address, stride, count);
    case DType::kUInt8: return copy_strided<uint8_t, int64_t>(values, 1, address, stride, count);
    case DType::kInt32: return copy_strided<int32_t, int64_t>(values, 1, address, stride, count);
    case DType::kInt64: return copy_strided<int64_t, int64_t>(values, 1, address, stride, count);
    default: return kernels::store_row_from_f32(static_cast<const float*>(values), count, dtype, address, stride);
  }
}

void fill_block(DType dtype, double number, int64_t count, void* out) {
  switch (lane_of(dtype)) {
    case Lane::kFloat: std::fill_n(static_cast<float*>(out), count, rounded(dtype, static_cast<float>(number))); return;
    case Lane::kDouble: std::fill_n(static_cast<double*>(out), count, number); return;
    case Lane::kInteger: std::fill_n(static_cast<int64_t*>(out), count, truncated(dtype, number)); return;
    case Lane::kBool: std::fill_n(static_cast<uint8_t*>(out), count, number != 0); return;
  }
}

void cast_block(DType from, DType to, const void* a, int64_t count, void* out) {
  switch (lane_of(from)) {
    case Lane::kFloat: return cast_from<float>(to, a, count, out);
    case Lane::kDouble: return cast_from<double>(to, a, count, out);
    case Lane::kInteger: return cast_from<int64_t>(to, a, count, out);
    case Lane::kBool: return cast_from<uint8_t>(to, a, count, out);
  }
}

void compute_block(const Instruction& instruction, DType operand_dtype, const void* a, const void* b, const void* c,
                   int64_t count, void* out) {
  const bool select = instruction.opcode == Opcode::kSelect;
  switch (lane_of(select ? instruction.dtype : operand_dtype)) {
    case Lane::kDouble:
      return select ? select_block<double>(a, b, c, count, out) : typed_block<double>(instruction, a, b, count, out);
    case Lane::kInteger:
      return select ? select_block<int64_t>(a, b, c, count, out) : typed_block<int64_t>(instruction, a, b, count, out);
    case Lane::kBool:
      return select ? select_block<uint8_t>(a, b, c, count, out) : typed_block<uint8_t>(instruction, a, b, count, out);
    case Lane::kFloat: QX_CHECK_MESSAGE(false, opcode_name(instruction.opcode));
  }
}

void Accumulator::reset(const Instruction& instruction) {
  opcode_ = instruction.opcode;
  dtype_ = instruction.dtype;
  double start = 0;
  integer_ = 0;
  if (opcode_ == Opcode::kReduceMax) {
    start = -std::numeric_limits<double>::infinity();
    integer_ = std::numeric_limits<int64_t>::min();
  } else if (opcode_ == Opcode::kReduceMin) {
    start = std::numeric_limits<double>::infinity();
    integer_ = std::numeric_limits<int64_t>::max();
  }
  std::fill_n(parts_, kParts, start);
}

void Accumulator::add(const void* values, int64_t count) {
  const auto fold = [&](const double* x, const auto& f) {
    int64_t i = 0;
    for (; i + kParts <= count; i += kParts) {
      for (int64_t part = 0; part < kParts; ++part) parts_[part] = f(parts_[part], x[i + part]);
    }
    for (; i < count; ++i) parts_[i % kParts] = f(parts_[i % kParts], x[i]);
  };
  const auto fold_integers = [&](const auto* x) {
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<int64_t>(x[i]);
      if (opcode_ == Opcode::kReduceMax) {
        integer_ = std::max(integer_, value);
      } else if (opcode_ == Opcode::kReduceMin) {
        integer_ = std::min(integer_, value);
      } else {
        integer_ = static_cast<int64_t>(static_cast<uint64_t>(integer_) + static_cast<uint64_t>(value));
      }
    }
  };
  if (lane_of(dtype_) == Lane::kInteger) return fold_integers(static_cast<const int64_t*>(values));
  if (lane_of(dtype_) == Lane::kBool) return fold_integers(static_cast<const uint8_t*>(values));
  const auto* x = static_cast<const double*>(values);
  if (opcode_ == Opcode::kReduceMax) return fold(x, larger<double>);
  if (opcode_ == Opcode::kReduceMin) return fold(x, smaller<double>);
  fold(x, [](double a, double b) { return a + b; });
}

void Accumulator::finish(int64_t row_length, int64_t count, void* out) const {
  if (lane_of(dtype_) == Lane::kInteger) {
    std::fill_n(static_cast<int64_t*>(out), count, wrapped(dtype_, integer_));
    return;
  }
  if (lane_of(dtype_) == Lane::kBool) {
    std::fill_n(static_cast<uint8_t*>(out), count, wrapped(dtype_, integer_) != 0);
    return;
  }
  double total = parts_[0];
  for (int64_t part = 1; part < kParts; ++part) {
    if (opcode_ == Opcode::kReduceMax) {
      total = larger(total, parts_[part]);
    } else if (opcode_ == Opcode::kReduceMin) {
      total = smaller(total, parts_[part]);
    } else {
      total += parts_[part];
    }
  }
  if (opcode_ == Opcode::kReduceMean) total /= static_cast<double>(row_length);
  std::fill_n(static_cast<double*>(out), count, total);
}

}  // namespace qx::tile
