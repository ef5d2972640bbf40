#include "quincunx/tile/block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "quincunx/base/check.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/elementwise/unary.h"

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
    zip<T>(a, b, count, out, [&](T x, T y) { return static_cast<int64_t>(f(x, y)); });
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
  const auto* which = static_cast<const int64_t*>(condition);
  const auto* x = static_cast<const T*>(b);
  const auto* y = static_cast<const T*>(c);
  auto* z = static_cast<T*>(out);
  for (int64_t i = 0; i < count; ++i) z[i] = which[i] != 0 ? x[i] : y[i];
}

// The vectorised kernels serve float; double takes the C library's.
bool transcendental(Opcode opcode, const float* a, int64_t count, float* out) {
  const std::span<const float> x(a, static_cast<size_t>(count));
  const std::span<float> y(out, static_cast<size_t>(count));
  switch (opcode) {
    case Opcode::kExp: QX_CHECK(kernels::exp(x, y).ok()); return true;
    case Opcode::kLog: QX_CHECK(kernels::log(x, y).ok()); return true;
    case Opcode::kErf: QX_CHECK(kernels::erf(x, y).ok()); return true;
    case Opcode::kTanh: QX_CHECK(kernels::tanh(x, y).ok()); return true;
    case Opcode::kSigmoid:
      map<float>(a, count, out, [](float v) { return -v; });
      QX_CHECK(kernels::exp(std::span<const float>(out, static_cast<size_t>(count)), y).ok());
      map<float>(out, count, out, [](float v) { return 1.0f / (1.0f + v); });
      return true;
    default: return false;
  }
}
bool transcendental(Opcode opcode, const double* a, int64_t count, double* out) {
  const auto with = [&](double (*f)(double)) {
    for (int64_t i = 0; i < count; ++i) out[i] = f(a[i]);
    return true;
  };
  switch (opcode) {
    case Opcode::kExp: return with(std::exp);
    case Opcode::kLog: return with(std::log);
    case Opcode::kErf: return with(std::erf);
    case Opcode::kTanh: return with(std::tanh);
    case Opcode::kSigmoid: return with([](double v) { return 1.0 / (1.0 + std::exp(-v)); });
    default: return false;
  }
}

template <typename T>
void float_unary(Opcode opcode, const void* a, int64_t count, void* out) {
  if (transcendental(opcode, static_cast<const T*>(a), count, static_cast<T*>(out))) return;
  switch (opcode) {
    case Opcode::kNeg: return map<T>(a, count, out, [](T x) { return -x; });
    case Opcode::kAbs: return map<T>(a, count, out, [](T x) { return std::fabs(x); });
    case Opcode::kSqrt: return map<T>(a, count, out, [](T x) { return std::sqrt(x); });
    case Opcode::kRsqrt: return map<T>(a, count, out, [](T x) { return T{1} / std::sqrt(x); });
    case Opcode::kReciprocal: return map<T>(a, count, out, [](T x) { return T{1} / x; });
    case Opcode::kSin: return map<T>(a, count, out, [](T x) { return std::sin(x); });
    case Opcode::kCos: return map<T>(a, count, out, [](T x) { return std::cos(x); });
    case Opcode::kFloor: return map<T>(a, count, out, [](T x) { return std::floor(x); });
    case Opcode::kCeil: return map<T>(a, count, out, [](T x) { return std::ceil(x); });
    case Opcode::kRound: return map<T>(a, count, out, [](T x) { return std::nearbyint(x); });
    case Opcode::kIsNan: return map<T>(a, count, out, [](T x) { return static_cast<int64_t>(x != x); });
    default: QX_CHECK_MESSAGE(false, opcode_name(opcode));
  }
}

template <typename T>
void float_binary(Opcode opcode, const void* a, const void* b, int64_t count, void* out) {
  switch (opcode) {
    case Opcode::kAdd: return zip<T>(a, b, count, out, [](T x, T y) { return x + y; });
    case Opcode::kSub: return zip<T>(a, b, count, out, [](T x, T y) { return x - y; });
    case Opcode::kMul: return zip<T>(a, b, count, out, [](T x, T y) { return x * y; });
    case Opcode::kDiv: return zip<T>(a, b, count, out, [](T x, T y) { return x / y; });
    case Opcode::kPow: return zip<T>(a, b, count, out, [](T x, T y) { return std::pow(x, y); });
    case Opcode::kMax: return zip<T>(a, b, count, out, larger<T>);
    case Opcode::kMin: return zip<T>(a, b, count, out, smaller<T>);
    default: QX_CHECK_MESSAGE(false, opcode_name(opcode));
  }
}

void integer_block(const Instruction& instruction, const void* a, const void* b, int64_t count, void* out) {
  const DType dtype = instruction.dtype;
  const auto one = [&](const auto& f) {
    map<int64_t>(a, count, out, [&](int64_t x) { return wrapped(dtype, static_cast<int64_t>(f(uint64_t(x)))); });
  };
  const auto two = [&](const auto& f) {
    zip<int64_t>(a, b, count, out, [&](int64_t x, int64_t y) {
      return wrapped(dtype, static_cast<int64_t>(f(static_cast<uint64_t>(x), static_cast<uint64_t>(y))));
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
    case Opcode::kMax: return zip<int64_t>(a, b, count, out, larger<int64_t>);
    case Opcode::kMin: return zip<int64_t>(a, b, count, out, smaller<int64_t>);
    default: QX_CHECK_MESSAGE(false, opcode_name(instruction.opcode));
  }
}

template <typename T>
void typed_block(const Instruction& instruction, const void* a, const void* b, int64_t count, void* out) {
  if (compare_block<T>(instruction.opcode, a, b, count, out)) return;
  if constexpr (std::is_same_v<T, int64_t>) {
    integer_block(instruction, a, b, count, out);
  } else if (num_operands(instruction.opcode) == 1) {
    float_unary<T>(instruction.opcode, a, count, out);
  } else {
    float_binary<T>(instruction.opcode, a, b, count, out);
  }
}

template <typename From>
void cast_from(DType to, const void* a, int64_t count, void* out) {
  switch (lane_of(to)) {
    case Lane::kFloat: return map<From>(a, count, out, [&](From x) { return rounded(to, static_cast<float>(x)); });
    case Lane::kDouble: return map<From>(a, count, out, [](From x) { return static_cast<double>(x); });
    case Lane::kInteger:
      return map<From>(a, count, out, [&](From x) {
        if constexpr (std::is_same_v<From, int64_t>) return wrapped(to, x);
        return truncated(to, static_cast<double>(x));
      });
  }
}

}  // namespace

Lane lane_of(DType dtype) {
  if (dtype == DType::kFloat64) return Lane::kDouble;
  return is_floating_point(dtype) ? Lane::kFloat : Lane::kInteger;
}

void load_block(DType dtype, const void* address, int64_t stride, int64_t count, void* out) {
  switch (dtype) {
    case DType::kFloat64: return copy_strided<double, double>(address, stride, out, 1, count);
    case DType::kBool: return copy_strided<int64_t, bool>(address, stride, out, 1, count);
    case DType::kUInt8: return copy_strided<int64_t, uint8_t>(address, stride, out, 1, count);
    case DType::kInt32: return copy_strided<int64_t, int32_t>(address, stride, out, 1, count);
    case DType::kInt64: return copy_strided<int64_t, int64_t>(address, stride, out, 1, count);
    default: return kernels::load_row_as_f32(dtype, address, stride, count, static_cast<float*>(out));
  }
}

void store_block(DType dtype, const void* values, int64_t count, void* address, int64_t stride) {
  switch (dtype) {
    case DType::kFloat64: return copy_strided<double, double>(values, 1, address, stride, count);
    case DType::kBool: return copy_strided<bool, int64_t>(values, 1, address, stride, count);
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
  }
}

void cast_block(DType from, DType to, const void* a, int64_t count, void* out) {
  switch (lane_of(from)) {
    case Lane::kFloat: return cast_from<float>(to, a, count, out);
    case Lane::kDouble: return cast_from<double>(to, a, count, out);
    case Lane::kInteger: return cast_from<int64_t>(to, a, count, out);
  }
}

void compute_block(const Instruction& instruction, DType operand_dtype, const void* a, const void* b, const void* c,
                   int64_t count, void* out) {
  const bool select = instruction.opcode == Opcode::kSelect;
  switch (lane_of(select ? instruction.dtype : operand_dtype)) {
    case Lane::kFloat:
      return select ? select_block<float>(a, b, c, count, out) : typed_block<float>(instruction, a, b, count, out);
    case Lane::kDouble:
      return select ? select_block<double>(a, b, c, count, out) : typed_block<double>(instruction, a, b, count, out);
    case Lane::kInteger:
      return select ? select_block<int64_t>(a, b, c, count, out) : typed_block<int64_t>(instruction, a, b, count, out);
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
  const auto fold = [&](const auto* x, const auto& f) {
    int64_t i = 0;
    for (; i + kParts <= count; i += kParts) {
      for (int64_t part = 0; part < kParts; ++part) parts_[part] = f(parts_[part], static_cast<double>(x[i + part]));
    }
    for (; i < count; ++i) parts_[i % kParts] = f(parts_[i % kParts], static_cast<double>(x[i]));
  };
  const auto floats = [&](const auto* x) {
    if (opcode_ == Opcode::kReduceMax) return fold(x, larger<double>);
    if (opcode_ == Opcode::kReduceMin) return fold(x, smaller<double>);
    fold(x, [](double a, double b) { return a + b; });
  };
  switch (lane_of(dtype_)) {
    case Lane::kFloat: return floats(static_cast<const float*>(values));
    case Lane::kDouble: return floats(static_cast<const double*>(values));
    case Lane::kInteger: break;
  }
  const auto* x = static_cast<const int64_t*>(values);
  for (int64_t i = 0; i < count; ++i) {
    if (opcode_ == Opcode::kReduceMax) {
      integer_ = std::max(integer_, x[i]);
    } else if (opcode_ == Opcode::kReduceMin) {
      integer_ = std::min(integer_, x[i]);
    } else {
      integer_ = static_cast<int64_t>(static_cast<uint64_t>(integer_) + static_cast<uint64_t>(x[i]));
    }
  }
}

void Accumulator::finish(int64_t row_length, int64_t count, void* out) const {
  if (lane_of(dtype_) == Lane::kInteger) {
    std::fill_n(static_cast<int64_t*>(out), count, wrapped(dtype_, integer_));
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
  if (lane_of(dtype_) == Lane::kDouble) {
    std::fill_n(static_cast<double*>(out), count, total);
  } else {
    std::fill_n(static_cast<float*>(out), count, static_cast<float>(total));
  }
}

}  // namespace qx::tile
