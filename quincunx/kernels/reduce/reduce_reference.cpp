#include "quincunx/kernels/reduce/reduce_reference.h"

#include <complex>
#include <cstring>
#include <type_traits>

#include "quincunx/base/float8.h"

namespace qx::kernels {
namespace {

template <float (*kDecode)(uint8_t), uint8_t (*kEncode)(float)>
struct Float8 {
  uint8_t bits;
};
using Float8E4M3FN = Float8<float_from_float8_e4m3fn_bits, float8_e4m3fn_bits_from_float>;
using Float8E5M2 = Float8<float_from_float8_e5m2_bits, float8_e5m2_bits_from_float>;
using Float8E4M3FNUZ = Float8<float_from_float8_e4m3fnuz_bits, float8_e4m3fnuz_bits_from_float>;
using Float8E5M2FNUZ = Float8<float_from_float8_e5m2fnuz_bits, float8_e5m2fnuz_bits_from_float>;
using Float8E8M0FNU = Float8<float_from_float8_e8m0fnu_bits, float8_e8m0fnu_bits_from_float>;
struct Bool {
  uint8_t value;
};

// How a stored element enters and leaves the arithmetic.
template <typename T>
struct Element {
  using Accumulator = T;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};
template <>
struct Element<BFloat16> {
  using Accumulator = float;
  static float load(BFloat16 value) { return static_cast<float>(value); }
  static BFloat16 store(float value) { return BFloat16(value); }
};
template <>
struct Element<Float16> {
  using Accumulator = float;
  static float load(Float16 value) { return static_cast<float>(value); }
  static Float16 store(float value) { return Float16(value); }
};
template <float (*kDecode)(uint8_t), uint8_t (*kEncode)(float)>
struct Element<Float8<kDecode, kEncode>> {
  using Accumulator = float;
  static float load(Float8<kDecode, kEncode> value) { return kDecode(value.bits); }
  static Float8<kDecode, kEncode> store(float value) { return {kEncode(value)}; }
};
template <>
struct Element<Bool> {
  using Accumulator = bool;
  static bool load(Bool value) { return value.value != 0; }
  static Bool store(bool value) { return {static_cast<uint8_t>(value)}; }
};

template <typename T>
inline constexpr bool kIsComplex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

template <typename T>
T multiply(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a && b;
  } else if constexpr (kIsComplex<T>) {
    // The textbook formula, as PyTorch's; operator* of std::complex recovers infinities by a slow library call.
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

template <typename T>
T add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}

template <typename T>
T combine_ordered(ReduceKind kind, T a, T b) {
  if constexpr (!kIsComplex<T>) {
    if constexpr (std::is_integral_v<T>) {
      switch (kind) {
        case ReduceKind::kBitAnd: return static_cast<T>(a & b);
        case ReduceKind::kBitOr: return static_cast<T>(a | b);
        case ReduceKind::kBitXor: return static_cast<T>(a ^ b);
        default: break;
      }
    }
    const bool is_nan = !(a == a);
    if (kind == ReduceKind::kMin) return a < b || is_nan ? a : b;
    if (kind == ReduceKind::kMax) return b < a || is_nan ? a : b;
  }
  return a;
}

template <typename T>
T combine(ReduceKind kind, T a, T b) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kAverage:
    case ReduceKind::kPreMulSum: return add(a, b);
    case ReduceKind::kProduct: return multiply(a, b);
    default: return combine_ordered(kind, a, b);
  }
}

template <typename T>
T scaled(T value, double multiplier) {
  if constexpr (std::is_integral_v<T>)
    return value;  // check_reduce refuses it
  else if constexpr (kIsComplex<T>) {
    const auto factor = static_cast<typename T::value_type>(multiplier);
    return {value.real() * factor, value.imag() * factor};
  } else
    return value * static_cast<T>(multiplier);
}

template <typename T>
T averaged(T sum, size_t num_sources) {
  if constexpr (std::is_same_v<T, bool>)
    return sum;  // check_reduce refuses it
  else if constexpr (kIsComplex<T>) {
    const auto divisor = static_cast<typename T::value_type>(num_sources);
    return {sum.real() / divisor, sum.imag() / divisor};
  } else if constexpr (std::is_integral_v<T>) {
    // In 64 bits: the number of sources need not fit a narrow type.
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    return static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(num_sources));
  } else
    return sum / static_cast<T>(num_sources);
}

template <typename T>
void run(ReduceKind kind, std::span<const void* const> sources, int64_t count, void* destination, double multiplier) {
  using A = typename Element<T>::Accumulator;
  constexpr int64_t kElementBytes = sizeof(T);
  const auto load = [&](size_t source, int64_t i) {
    T stored;
    std::memcpy(&stored, static_cast<const std::byte*>(sources[source]) + i * kElementBytes, sizeof(T));
    const A value = Element<T>::load(stored);
    return kind == ReduceKind::kPreMulSum ? scaled(value, multiplier) : value;
  };
  for (int64_t i = 0; i < count; ++i) {
    A value = load(0, i);
    for (size_t s = 1; s < sources.size(); ++s) value = combine(kind, value, load(s, i));
    if (kind == ReduceKind::kAverage) value = averaged(value, sources.size());
    const T stored = Element<T>::store(value);
    std::memcpy(static_cast<std::byte*>(destination) + i * kElementBytes, &stored, sizeof(T));
  }
}

}  // namespace

void reduce_reference(ReduceKind kind, DType dtype, std::span<const void* const> sources, int64_t count,
                      void* destination, double multiplier) {
  const auto call = [&]<typename T>() { run<T>(kind, sources, count, destination, multiplier); };
  switch (dtype) {
    case DType::kBool: return call.operator()<Bool>();
    case DType::kInt8: return call.operator()<int8_t>();
    case DType::kUInt8: return call.operator()<uint8_t>();
    case DType::kInt16: return call.operator()<int16_t>();
    case DType::kUInt16: return call.operator()<uint16_t>();
    case DType::kInt32: return call.operator()<int32_t>();
    case DType::kUInt32: return call.operator()<uint32_t>();
    case DType::kInt64: return call.operator()<int64_t>();
    case DType::kUInt64: return call.operator()<uint64_t>();
    case DType::kFloat8E4M3FN: return call.operator()<Float8E4M3FN>();
    case DType::kFloat8E5M2: return call.operator()<Float8E5M2>();
    case DType::kFloat8E4M3FNUZ: return call.operator()<Float8E4M3FNUZ>();
    case DType::kFloat8E5M2FNUZ: return call.operator()<Float8E5M2FNUZ>();
    case DType::kFloat8E8M0FNU: return call.operator()<Float8E8M0FNU>();
    case DType::kFloat16: return call.operator()<Float16>();
    case DType::kBFloat16: return call.operator()<BFloat16>();
    case DType::kFloat32: return call.operator()<float>();
    case DType::kFloat64: return call.operator()<double>();
    case DType::kComplex64: return call.operator()<std::complex<float>>();
    case DType::kComplex128: return call.operator()<std::complex<double>>();
  }
}

}  // namespace qx::kernels
