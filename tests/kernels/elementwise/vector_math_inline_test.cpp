// The functions of vector_math-inl.h that no public entry reaches directly, on the baseline instruction set, which has
// no fused multiply-add: the worse case for rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "quincunx/kernels/elementwise/vector_math-inl.h"

namespace qx::kernels {
namespace {

namespace simd = HWY_NAMESPACE;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float exp2_of_non_positive(float x) {
  const hwy::HWY_NAMESPACE::CappedTag<float, 1> d;
  return hwy::HWY_NAMESPACE::GetLane(simd::Exp2OfNonPositive(d, hwy::HWY_NAMESPACE::Set(d, x)));
}
float exp_of_non_positive(float x) {
  const hwy::HWY_NAMESPACE::CappedTag<float, 1> d;
  return hwy::HWY_NAMESPACE::GetLane(simd::ExpOfNonPositive(d, hwy::HWY_NAMESPACE::Set(d, x)));
}

double ulps(float actual, double exact) { return std::abs(actual - exact) / std::ldexp(1.0, std::ilogb(exact) - 23); }

// Every 4099th pattern of the negative floats down to -inf.
template <typename Body>
void for_each_non_positive(const Body& body) {
  for (uint64_t pattern = 0x80000000u; pattern <= 0xff800000u; pattern += 4099) {
    body(std::bit_cast<float>(static_cast<uint32_t>(pattern)));
  }
}

TEST(Exp2OfNonPositive, StaysWithinItsStatedErrorAndIsZeroBelowTheNormalNumbers) {
  for_each_non_positive([](float x) {
    const float y = exp2_of_non_positive(x);
    if (x < -126) {
      ASSERT_EQ(y, 0) << x;
    } else {
      ASSERT_LE(ulps(y, std::exp2(static_cast<double>(x))), 1.25) << x;
    }
  });
  EXPECT_EQ(exp2_of_non_positive(0.0f), 1.0f);
  EXPECT_EQ(exp2_of_non_positive(-126.0f), 0x1p-126f);
  EXPECT_EQ(exp2_of_non_positive(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(exp2_of_non_positive(std::nanf(""))));
}

TEST(ExpOfNonPositive, IsWithinOneUlpAndZeroBelowItsLimit) {
  for_each_non_positive([](float x) {
    const float y = exp_of_non_positive(x);
    if (x < -87) {
      ASSERT_EQ(y, 0) << x;
    } else {
      ASSERT_LE(ulps(y, std::exp(static_cast<double>(x))), 1.0) << x;
    }
  });
  EXPECT_EQ(exp_of_non_positive(-0.0f), 1.0f);
  EXPECT_EQ(exp_of_non_positive(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(exp_of_non_positive(std::nanf(""))));
}

}  // namespace
}  // namespace qx::kernels
