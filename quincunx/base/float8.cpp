#include "quincunx/base/float8.h"

#include <bit>
#include <limits>

namespace qx {
namespace {

constexpr uint32_t kFloatMantissaBits = 23;
constexpr uint32_t kFloatBias = 127;
constexpr uint32_t kFloatInfinity = 0x7f800000u;

// One sign bit, then the exponent, then the mantissa.
struct Format {
  uint32_t mantissa_bits;
  uint32_t bias;
  uint32_t largest;  // code of the largest finite value
  uint32_t beyond;   // code of what lies beyond it, infinity included
  uint32_t nan;
  bool signed_zero_and_nan;  // FNUZ formats have one zero, and their only NaN is 0x80

  constexpr uint32_t drop() const { return kFloatMantissaBits - mantissa_bits; }
  constexpr uint32_t rebias() const { return (kFloatBias - bias) << mantissa_bits; }
  constexpr float smallest_normal() const {
    return std::bit_cast<float>((kFloatBias - bias + 1) << kFloatMantissaBits);
  }
  constexpr float smallest() const {
    return std::bit_cast<float>((kFloatBias - bias + 1 - mantissa_bits) << kFloatMantissaBits);
  }
  // Adding it aligns the mantissa so that the hardware rounds to multiples of the smallest value.
  constexpr uint32_t aligner() const { return (kFloatBias - bias + 1 + drop()) << kFloatMantissaBits; }
};

constexpr Format kE4M3FN = {3, 7, 0x7e, 0x7e, 0x7f, true};
constexpr Format kE5M2 = {2, 15, 0x7b, 0x7c, 0x7f, true};
constexpr Format kE4M3FNUZ = {3, 8, 0x7f, 0x80, 0x80, false};
constexpr Format kE5M2FNUZ = {2, 16, 0x7f, 0x80, 0x80, false};

template <const Format& format>
uint8_t encode(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t code;
  if (magnitude > kFloatInfinity) {
    code = format.nan;
  } else if (magnitude == kFloatInfinity) {
    code = format.beyond;
  } else if (std::bit_cast<float>(magnitude) < format.smallest_normal()) {
    const float aligned = std::bit_cast<float>(magnitude) + std::bit_cast<float>(format.aligner());
    code = std::bit_cast<uint32_t>(aligned) - format.aligner();
  } else {
    const uint32_t half = (1u << (format.drop() - 1)) - 1 + ((magnitude >> format.drop()) & 1u);
    code = ((magnitude + half) >> format.drop()) - format.rebias();
    if (code > format.largest) code = format.beyond;
  }
  const uint32_t sign = (bits >> 24) & 0x80u;
  const bool keeps_sign = format.signed_zero_and_nan || code != 0;
  return static_cast<uint8_t>(keeps_sign ? code | sign : code);
}

template <const Format& format>
float decode(uint8_t bits) {
  const uint32_t code = bits & 0x7fu;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  if (!format.signed_zero_and_nan && bits == 0x80u) return std::numeric_limits<float>::quiet_NaN();
  uint32_t magnitude;
  if (code > format.largest) {
    const bool is_infinity = code == format.beyond && code != format.nan;
    magnitude = is_infinity ? kFloatInfinity : kFloatInfinity | 0x00400000u;
  } else if (code < (1u << format.mantissa_bits)) {
    magnitude = std::bit_cast<uint32_t>(static_cast<float>(code) * format.smallest());
  } else {
    magnitude = (code + format.rebias()) << format.drop();
  }
  return std::bit_cast<float>(magnitude | sign);
}

}  // namespace

float float_from_float8_e4m3fn_bits(uint8_t bits) { return decode<kE4M3FN>(bits); }
uint8_t float8_e4m3fn_bits_from_float(float value) { return encode<kE4M3FN>(value); }
float float_from_float8_e5m2_bits(uint8_t bits) { return decode<kE5M2>(bits); }
uint8_t float8_e5m2_bits_from_float(float value) { return encode<kE5M2>(value); }
float float_from_float8_e4m3fnuz_bits(uint8_t bits) { return decode<kE4M3FNUZ>(bits); }
uint8_t float8_e4m3fnuz_bits_from_float(float value) { return encode<kE4M3FNUZ>(value); }
float float_from_float8_e5m2fnuz_bits(uint8_t bits) { return decode<kE5M2FNUZ>(bits); }
uint8_t float8_e5m2fnuz_bits_from_float(float value) { return encode<kE5M2FNUZ>(value); }

float float_from_float8_e8m0fnu_bits(uint8_t bits) {
  if (bits == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : static_cast<uint32_t>(bits) << kFloatMantissaBits);
}

uint8_t float8_e8m0fnu_bits_from_float(float value) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
  const uint32_t exponent = magnitude >> kFloatMantissaBits;
  if (exponent == 0xff) return 0xff;
  // The stored mantissa of 2^-127 is 0.5: a subnormal is above it as soon as a lower bit is set.
  const uint32_t tail = magnitude & 0x007fffffu;
  const bool up = exponent == 0 ? tail > 0x00400000u : tail >= 0x00400000u;
  return static_cast<uint8_t>(exponent + up);
}

}  // namespace qx
