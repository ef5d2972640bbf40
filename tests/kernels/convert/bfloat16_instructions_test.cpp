#include "quincunx/kernels/convert/bfloat16_instructions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/random_values.h"
#include "quincunx/base/cpu_features.h"
#include "quincunx/base/dtype.h"
#include "quincunx/kernels/elementwise/unary.h"

namespace qx::kernels {
namespace {

class BFloat16Instructions : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !cpu_features().avx512bf16) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
    has_bfloat16_instructions = GetParam();
  }
  void TearDown() override { has_bfloat16_instructions = cpu_features().avx512bf16; }
};

// Products of 16 bits or, below 2^-126, denormals: they round down, up, to even and to infinity.
TEST_P(BFloat16Instructions, RoundProductsToNearestEven) {
  constexpr int64_t kCount = 65536;
  std::vector<uint16_t> numbers(kCount), factors(kCount), products(kCount);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint16_t>(i);
  const auto view = [&](std::vector<uint16_t>& bits) {
    return contiguous_view(bits.data(), DType::kBFloat16, {kCount});
  };
  for (const float factor : {1.0f, 0x1.02p0f, 0x1.8p0f, 0x1.fep0f, 0x1.82p-100f, 0x1.9ap-60f, 0x1.02p-126f}) {
    factors.assign(numbers.size(), bfloat16_bits_from_float(factor));
    ASSERT_TRUE(apply_gated(UnaryFunction::kRelu, view(factors), view(numbers), view(products)).ok());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float expected = factor * float_from_bfloat16_bits(numbers[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(float_from_bfloat16_bits(products[i]))) << i;
      } else {
        ASSERT_EQ(products[i], bfloat16_bits_from_float(expected)) << i << " times " << factor;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OnAndOff, BFloat16Instructions, ::testing::Bool());

}  // namespace
}  // namespace qx::kernels
