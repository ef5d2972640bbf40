#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "quincunx/base/dtype.h"
#include "quincunx/base/float8.h"

namespace qx {
namespace {

// A format by its definition in double arithmetic: nothing here shares code or tricks with the conversions.
struct Format {
  const char* name;
  int exponent_bits, mantissa_bits, bias;
  uint32_t largest;   // code of the largest finite value
  uint32_t beyond;    // code of what rounds beyond it
  uint32_t infinity;  // code of infinity
  bool fnuz;          // one zero, NaN is the code of minus zero
  float (*decode)(uint32_t);
  uint32_t (*encode)(float);

  int num_bits() const { return 1 + exponent_bits + mantissa_bits; }
  uint32_t sign_bit() const { return 1u << (num_bits() - 1); }
  bool is_nan(uint32_t code) const {
    const uint32_t magnitude = code & (sign_bit() - 1);
    return fnuz ? code == sign_bit() : magnitude > largest && !is_infinity(code);
  }
  bool is_infinity(uint32_t code) const { return infinity > largest && !fnuz && (code & (sign_bit() - 1)) == infinity; }
  // Of the codes 0, 1, 2, ... without sign, and as if no code were reserved.
  double magnitude(uint32_t code) const {
    const auto exponent = static_cast<int>(code >> mantissa_bits);
    const double fraction = static_cast<double>(code & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  }
  // The nearest code; of two equally near ones the even.
  uint32_t nearest(double value) const {
    uint32_t low = 0;
    uint32_t high = largest + 1;  // the first magnitude out of range
    if (value >= magnitude(high)) return high;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (magnitude(middle) <= value ? low : high) = middle;
    }
    const double below = value - magnitude(low);
    const double above = magnitude(high) - value;
    if (below != above) return below < above ? low : high;
    return low % 2 == 0 ? low : high;
  }
  uint32_t expected(float value) const {
    const bool minus = std::signbit(value);
    const double size = std::fabs(static_cast<double>(value));
    uint32_t code = std::isinf(value) ? infinity : nearest(size);
    if (code > largest) code = std::isinf(value) ? infinity : beyond;
    if (fnuz) return code == 0 || code == sign_bit() ? code : code | (minus ? sign_bit() : 0);
    return code | (minus ? sign_bit() : 0);
  }
};

const Format kFormats[] = {
    {"float16", 5, 10, 15, 0x7bff, 0x7c00, 0x7c00, false,
     [](uint32_t bits) { return float_from_float16_bits(static_cast<uint16_t>(bits)); },
     [](float value) -> uint32_t { return float16_bits_from_float(value); }},
    {"bfloat16", 8, 7, 127, 0x7f7f, 0x7f80, 0x7f80, false,
     [](uint32_t bits) { return float_from_bfloat16_bits(static_cast<uint16_t>(bits)); },
     [](float value) -> uint32_t { return bfloat16_bits_from_float(value); }},
    {"float8_e4m3fn", 4, 3, 7, 0x7e, 0x7e, 0x7e, false,
     [](uint32_t bits) { return float_from_float8_e4m3fn_bits(static_cast<uint8_t>(bits)); },
     [](float value) -> uint32_t { return float8_e4m3fn_bits_from_float(value); }},
    {"float8_e5m2", 5, 2, 15, 0x7b, 0x7c, 0x7c, false,
     [](uint32_t bits) { return float_from_float8_e5m2_bits(static_cast<uint8_t>(bits)); },
     [](float value) -> uint32_t { return float8_e5m2_bits_from_float(value); }},
    {"float8_e4m3fnuz", 4, 3, 8, 0x7f, 0x80, 0x80, true,
     [](uint32_t bits) { return float_from_float8_e4m3fnuz_bits(static_cast<uint8_t>(bits)); },
     [](float value) -> uint32_t { return float8_e4m3fnuz_bits_from_float(value); }},
    {"float8_e5m2fnuz", 5, 2, 16, 0x7f, 0x80, 0x80, true,
     [](uint32_t bits) { return float_from_float8_e5m2fnuz_bits(static_cast<uint8_t>(bits)); },
     [](float value) -> uint32_t { return float8_e5m2fnuz_bits_from_float(value); }},
};

class FloatFormat : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(All, FloatFormat, testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(FloatFormat, DecodesEveryCodeByItsDefinition) {
  const Format& format = GetParam();
  for (uint32_t code = 0; code < 2 * format.sign_bit(); ++code) {
    const float value = format.decode(code);
    if (format.is_nan(code)) {
      ASSERT_TRUE(std::isnan(value)) << code;
      continue;
    }
    const uint32_t magnitude = code & (format.sign_bit() - 1);
    const double expected =
        format.is_infinity(code) ? std::numeric_limits<double>::infinity() : format.magnitude(magnitude);
    ASSERT_EQ(std::fabs(value), expected) << code;
    ASSERT_EQ(std::signbit(value), code >= format.sign_bit()) << code;
  }
}

TEST_P(FloatFormat, KeepsEveryValueThatItCanHold) {
  const Format& format = GetParam();
  for (uint32_t code = 0; code < 2 * format.sign_bit(); ++code) {
    if (format.is_nan(code)) continue;
    ASSERT_EQ(format.encode(format.decode(code)), code);
  }
}

// All bits that a format keeps, each with the tails just below, at and above half: every case of rounding.
TEST_P(FloatFormat, RoundsEveryCaseToTheNearestEven) {
  const Format& format = GetParam();
  const int dropped = 23 - format.mantissa_bits;
  const uint32_t half = 1u << (dropped - 1);
  for (uint32_t kept = 0; kept < (1u << (32 - dropped)); ++kept) {
    for (const uint32_t tail : {0u, 1u, half - 1, half, half + 1, 2 * half - 1}) {
      const float value = std::bit_cast<float>((kept << dropped) | tail);
      if (std::isnan(value)) continue;
      ASSERT_EQ(format.encode(value), format.expected(value)) << std::hexfloat << value;
    }
  }
}

// Subnormal results drop more bits than normal ones: walk around each value and each middle between two.
TEST_P(FloatFormat, RoundsSubnormalsToTheNearestEven) {
  const Format& format = GetParam();
  for (uint32_t code = 0; code <= (2u << format.mantissa_bits); ++code) {
    const double middle = (format.magnitude(code) + format.magnitude(code + 1)) / 2;
    for (const auto center : {static_cast<float>(format.magnitude(code)), static_cast<float>(middle)}) {
      for (const float value : {std::nextafter(center, 0.0f), center, std::nextafter(center, 1.0f)}) {
        for (const float sign : {1.0f, -1.0f}) {
          ASSERT_EQ(format.encode(sign * value), format.expected(sign * value)) << std::hexfloat << sign * value;
        }
      }
    }
  }
}

TEST_P(FloatFormat, KeepsNaN) {
  const Format& format = GetParam();
  for (const uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu}) {
    const uint32_t code = format.encode(std::bit_cast<float>(bits));
    EXPECT_TRUE(format.is_nan(code)) << std::hex << bits << " became " << code;
    EXPECT_TRUE(std::isnan(format.decode(code)));
  }
}

// As PyTorch 2.13 converts them.
TEST(Float8Range, SaturatesOnlyE4M3FN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float8_e4m3fn_bits_from_float(480), 0x7e);
  EXPECT_EQ(float8_e4m3fn_bits_from_float(-infinity), 0xfe);
  EXPECT_EQ(float8_e5m2_bits_from_float(61439), 0x7b);
  EXPECT_EQ(float8_e5m2_bits_from_float(61440), 0x7c);
  EXPECT_EQ(float8_e5m2_bits_from_float(-infinity), 0xfc);
  EXPECT_EQ(float8_e4m3fnuz_bits_from_float(247.9f), 0x7f);
  EXPECT_EQ(float8_e4m3fnuz_bits_from_float(248), 0x80);
  EXPECT_EQ(float8_e5m2fnuz_bits_from_float(-infinity), 0x80);
  EXPECT_EQ(float8_e5m2fnuz_bits_from_float(-0.0f), 0x00);
}

TEST(Float8E8M0, HoldsEveryPowerOfTwo) {
  for (int exponent = -127; exponent <= 127; ++exponent) {
    const auto value = static_cast<float>(std::ldexp(1.0, exponent));
    EXPECT_EQ(float8_e8m0fnu_bits_from_float(value), exponent + 127);
    EXPECT_EQ(float_from_float8_e8m0fnu_bits(static_cast<uint8_t>(exponent + 127)), value);
  }
  EXPECT_TRUE(std::isnan(float_from_float8_e8m0fnu_bits(0xff)));
}

TEST(Float8E8M0, GoesUpFromOneAndAHalf) {
  for (int exponent = -126; exponent <= 126; ++exponent) {
    const auto middle = static_cast<float>(std::ldexp(1.5, exponent));
    EXPECT_EQ(float8_e8m0fnu_bits_from_float(middle), exponent + 128);
    EXPECT_EQ(float8_e8m0fnu_bits_from_float(-middle), exponent + 128);
    EXPECT_EQ(float8_e8m0fnu_bits_from_float(std::nextafter(middle, 0.0f)), exponent + 127);
  }
}

TEST(Float8E8M0, TreatsTheEndsAsPyTorchDoes) {
  EXPECT_EQ(float8_e8m0fnu_bits_from_float(0.0f), 0x00);
  EXPECT_EQ(float8_e8m0fnu_bits_from_float(0x1p-149f), 0x00);
  EXPECT_EQ(float8_e8m0fnu_bits_from_float(1.25f * 0x1p-127f), 0x01);
  EXPECT_EQ(float8_e8m0fnu_bits_from_float(1.45f * 0x1p127f), 0xfe);
  EXPECT_EQ(float8_e8m0fnu_bits_from_float(1.5f * 0x1p127f), 0xff);
  EXPECT_EQ(float8_e8m0fnu_bits_from_float(std::numeric_limits<float>::infinity()), 0xff);
  EXPECT_EQ(float8_e8m0fnu_bits_from_float(std::numeric_limits<float>::quiet_NaN()), 0xff);
}

}  // namespace
}  // namespace qx
