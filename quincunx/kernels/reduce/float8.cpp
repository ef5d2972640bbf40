#include "quincunx/kernels/reduce/float8.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "quincunx/base/check.h"

namespace qx::kernels {
namespace {

struct Format {
  int mantissa_bits;
  int bias;
  uint8_t largest;   // code of the largest finite value
  uint8_t overflow;  // code that a larger magnitude becomes, without its sign
  uint8_t nan;
  bool finite_only_nan;  // 0x80 is the only NaN, and zero has no sign
};

const Format& format_of(DType dtype) {
  static constexpr Format kE4M3FN{3, 7, 0x7e, 0x7f, 0x7f, false};
  static constexpr Format kE5M2{2, 15, 0x7b, 0x7c, 0x7f, false};
  static constexpr Format kE4M3FNUZ{3, 8, 0x7f, 0x80, 0x80, true};
  static constexpr Format kE5M2FNUZ{2, 16, 0x7f, 0x80, 0x80, true};
  switch (dtype) {
    case DType::kFloat8E4M3FN: return kE4M3FN;
    case DType::kFloat8E5M2: return kE5M2;
    case DType::kFloat8E4M3FNUZ: return kE4M3FNUZ;
    default: QX_CHECK(dtype == DType::kFloat8E5M2FNUZ); return kE5M2FNUZ;
  }
}

// The value of a code without its sign bit, as if codes beyond the largest went on.
float magnitude(const Format& format, int code) {
  const int exponent = code >> format.mantissa_bits;
  const int fraction = code & ((1 << format.mantissa_bits) - 1);
  if (exponent == 0) return std::ldexp(static_cast<float>(fraction), 1 - format.bias - format.mantissa_bits);
  return std::ldexp(static_cast<float>((1 << format.mantissa_bits) + fraction),
                    exponent - format.bias - format.mantissa_bits);
}

// 2^(bits - 127), and 255 is NaN.
float float_from_exponent(uint8_t bits) {
  return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, int{bits} - 127);
}

}  // namespace

float float_from_float8_bits(DType dtype, uint8_t bits) {
  if (dtype == DType::kFloat8E8M0FNU) return float_from_exponent(bits);
  const Format& format = format_of(dtype);
  const int code = bits & 0x7f;
  if (format.finite_only_nan ? bits == 0x80 : code > format.largest) {
    const bool infinite = dtype == DType::kFloat8E5M2 && code == 0x7c;
    const float special = infinite ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    return (bits & 0x80) != 0 && infinite ? -special : special;
  }
  const float value = magnitude(format, code);
  return (bits & 0x80) != 0 ? -value : value;
}

uint8_t float8_bits_from_float(DType dtype, float value) {
  if (dtype == DType::kFloat8E8M0FNU) {  // only ever a value that came from the format
    return std::isnan(value) ? 0xff : static_cast<uint8_t>(std::ilogb(value) + 127);
  }
  const Format& format = format_of(dtype);
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return format.finite_only_nan ? format.nan : static_cast<uint8_t>(format.nan | sign);
  const float absolute = std::fabs(value);
  int code = 0;  // the last code whose value is not above
  for (int step = 64; step > 0; step >>= 1) {
    if (code + step <= format.largest && magnitude(format, code + step) <= absolute) code += step;
  }
  const float below = absolute - magnitude(format, code);
  const float above = magnitude(format, code + 1) - absolute;
  if (below > above || (below == above && (code & 1) != 0)) ++code;
  if (code > format.largest) code = format.overflow;
  if (format.finite_only_nan && code == 0) return 0;
  return static_cast<uint8_t>(code | sign);
}

}  // namespace qx::kernels
