#include "quincunx/kernels/convert/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

TensorView view(void* data, DType dtype, std::vector<int64_t> shape) {
  return TensorView::contiguous(data, dtype, shape).value();
}

std::vector<uint16_t> all_16_bit_patterns() {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  return bits;
}

TEST(Convert, WidensEvery16BitPatternExactly) {
  for_each_dispatch_target([] {
    std::vector<uint16_t> bits = all_16_bit_patterns();
    std::vector<float> wide(bits.size());
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      ASSERT_TRUE(convert(view(bits.data(), dtype, {65536}), view(wide.data(), DType::kFloat32, {65536})).ok());
      for (size_t i = 0; i < bits.size(); ++i) {
        const float expected =
            dtype == DType::kBFloat16 ? float_from_bfloat16_bits(bits[i]) : float_from_float16_bits(bits[i]);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(wide[i])) << i;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << i;
        }
      }
    }
  });
}

TEST(Convert, NarrowsToNearestEvenOverAllOfF32) {
  for_each_dispatch_target([] {
    std::vector<float> wide;
    for (uint64_t pattern = 0; pattern >> 32 == 0; pattern += 32771) {
      wide.push_back(std::bit_cast<float>(static_cast<uint32_t>(pattern)));
    }
    const auto count = static_cast<int64_t>(wide.size());
    std::vector<uint16_t> narrow(wide.size());
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      ASSERT_TRUE(convert(view(wide.data(), DType::kFloat32, {count}), view(narrow.data(), dtype, {count})).ok());
      for (size_t i = 0; i < wide.size(); ++i) {
        const bool bf16 = dtype == DType::kBFloat16;
        const float back = bf16 ? float_from_bfloat16_bits(narrow[i]) : float_from_float16_bits(narrow[i]);
        if (std::isnan(wide[i])) {
          ASSERT_TRUE(std::isnan(back)) << i;
        } else {
          ASSERT_EQ(narrow[i], bf16 ? bfloat16_bits_from_float(wide[i]) : float16_bits_from_float(wide[i])) << wide[i];
        }
      }
    }
  });
}

TEST(Convert, FollowsStridesOfBothSides) {
  for_each_dispatch_target([] {
    std::vector<float> source(7 * 5);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i);
    std::vector<uint16_t> destination(5 * 14, 0xffff);
    const int64_t shape[] = {5, 7}, transposed[] = {1, 5}, spread[] = {14, 2};
    const auto from = TensorView::strided(source.data(), DType::kFloat32, shape, transposed).value();
    const auto to = TensorView::strided(destination.data(), DType::kBFloat16, shape, spread).value();
    ASSERT_TRUE(convert(from, to).ok());
    for (size_t row = 0; row < 5; ++row) {
      for (size_t column = 0; column < 7; ++column) {
        EXPECT_EQ(float_from_bfloat16_bits(destination[row * 14 + column * 2]), source[column * 5 + row]);
        EXPECT_EQ(destination[row * 14 + column * 2 + 1], 0xffff);
      }
    }
  });
}

TEST(Convert, TouchesNothingBeyondRaggedEnds) {
  for_each_dispatch_target([] {
    for (int64_t count = 0; count <= 35; ++count) {
      std::vector<float> source(static_cast<size_t>(count), 1.5f);
      std::vector<uint16_t> destination(static_cast<size_t>(count) + 1, 0xabcd);
      const TensorView to = view(destination.data(), DType::kFloat16, {count});
      ASSERT_TRUE(convert(view(source.data(), DType::kFloat32, {count}), to).ok());
      for (int64_t i = 0; i < count; ++i) EXPECT_EQ(destination[static_cast<size_t>(i)], 0x3e00);
      EXPECT_EQ(destination.back(), 0xabcd);
    }
  });
}

TEST(Convert, RejectsBadInput) {
  std::vector<float> x(8), y(8);
  const TensorView in = view(x.data(), DType::kFloat32, {8});
  EXPECT_EQ(convert(in, view(y.data(), DType::kInt32, {8})).message(),
            "destination: expected float32, bfloat16 or float16, got int32[8]");
  EXPECT_EQ(convert(in, view(y.data(), DType::kFloat32, {2, 4})).message(),
            "destination: expected the shape of source float32[8], got float32[2, 4]");
  EXPECT_EQ(convert(in, view(x.data(), DType::kBFloat16, {8})).message(),
            "destination: overlaps source without being the same tensor (bfloat16[8] and float32[8])");
}

}  // namespace
}  // namespace qx::kernels
