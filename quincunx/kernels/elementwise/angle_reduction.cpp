#include "quincunx/kernels/elementwise/angle_reduction.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

namespace qx::kernels {
namespace {

// The binary digits of 2/pi after the point.
constexpr uint64_t kTwoOverPi[] = {0xA2F9836E4E441529u, 0xFC2757D1F534DDC0u, 0xDB6295993C439041u, 0xFE5163ABDEBBC561u};

// 64 digits from digit `first` on, counted from 0.
uint64_t digits(int first) {
  const int word = first / 64;
  const int shift = first % 64;
  return shift == 0 ? kTwoOverPi[word] : kTwoOverPi[word] << shift | kTwoOverPi[word + 1] >> (64 - shift);
}

}  // namespace

ReducedAngle reduce_large_angle(float x) {
  if (!std::isfinite(x)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint64_t mantissa = (bits & 0x7fffffu) | 0x800000u;
  const int exponent = static_cast<int>(bits >> 23 & 0xffu) - 150;  // |x| = mantissa * 2^exponent
  // Digit i of 2/pi weighs 2^(exponent - i - 1) quadrants a unit of the mantissa; what weighs four or more are whole
  // turns. The first digit kept weighs two, so the product has two bits before the point and 62 behind it.
  const int first = exponent - 2;
  const uint64_t product = mantissa * digits(first) + (mantissa * (digits(first + 64) >> 32) >> 32);
  const uint64_t nearest = (product + (uint64_t{1} << 61)) >> 62;
  const auto fraction = static_cast<int64_t>(product - (nearest << 62));
  const double remainder = static_cast<double>(fraction) * 0x1p-62 * (std::numbers::pi / 2);
  const bool negative = bits >> 31 != 0;
  const auto quadrant = static_cast<int32_t>(nearest & 3);
  return {static_cast<float>(negative ? -remainder : remainder), negative ? (4 - quadrant) & 3 : quadrant};
}

}  // namespace qx::kernels
