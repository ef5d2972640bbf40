// What packing keeps of a weight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/random_values.h"
#include "quincunx/kernels/low_precision_gemm/low_precision_gemm.h"
#include "quincunx/kernels/low_precision_gemm/weight_layout.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kBFloat16, WeightFormat::kFloat16, WeightFormat::kInt8,
                                     WeightFormat::kInt8Grouped, WeightFormat::kInt4Grouped};

std::vector<uint8_t> storage_for(WeightFormat format, int64_t inner, int64_t columns) {
  return std::vector<uint8_t>(static_cast<size_t>(packed_weight_size_bytes(format, inner, columns).value()), 0xee);
}

std::vector<float> round_trip(std::vector<float> values, WeightFormat format, int64_t inner, int64_t columns) {
  std::vector<uint8_t> storage = storage_for(format, inner, columns);
  const PackedWeight packed = pack_weight(f32_view(values, {inner, columns}), format, storage).value();
  std::vector<float> result(values.size());
  EXPECT_TRUE(unpack_weight(packed, f32_view(result, {inner, columns})).ok());
  return result;
}

TEST(PackWeight, SixteenBitFormatsRoundToNearestEven) {
  const auto values = normal_values(35 * 19, 1);
  const auto bfloat16 = round_trip(values, WeightFormat::kBFloat16, 35, 19);
  const auto float16 = round_trip(values, WeightFormat::kFloat16, 35, 19);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(bfloat16[i], static_cast<float>(BFloat16(values[i])));
    EXPECT_EQ(float16[i], static_cast<float>(Float16(values[i])));
  }
}

TEST(PackWeight, SixteenBitFormatsKeepNaNAndInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const WeightFormat format : {WeightFormat::kBFloat16, WeightFormat::kFloat16}) {
    const auto kept = round_trip({std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}, format, 3, 1);
    EXPECT_TRUE(std::isnan(kept[0]));
    EXPECT_EQ(kept[1], kInfinity);
    EXPECT_EQ(kept[2], -kInfinity);
  }
}

// The error of each weight is at most half a level, whose size follows from the largest magnitude of its column or
// group.
void expect_within_half_a_level(const std::vector<float>& values, WeightFormat format, int64_t inner, int64_t columns) {
  const auto kept = round_trip(values, format, inner, columns);
  const int64_t group = is_grouped(format) ? kGroupLength : inner;
  const double limit = format == WeightFormat::kInt4Grouped ? 7.0 : 127.0;
  // The scale is rounded up: f16 has 2^-10 between neighbours, and 2^-24 among its denormals.
  const double step = is_grouped(format) ? 0x1p-10 : 0x1p-23;
  const double smallest = is_grouped(format) ? 0x1p-24 : 0x1p-149;
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t begin = 0; begin < inner; begin += group) {
      const int64_t end = std::min(inner, begin + group);
      double largest = 0.0;
      for (int64_t k = begin; k < end; ++k) largest = std::max(largest, std::abs(double{values[k * columns + j]}));
      const double scale = largest / limit * (1.0 + step) + smallest;
      for (int64_t k = begin; k < end; ++k) {
        // The division by the scale and the product with it are rounded to f32.
        ASSERT_LE(std::abs(double{values[k * columns + j]} - kept[k * columns + j]), scale / 2 + largest * 0x1p-22)
            << weight_format_name(format) << " at " << k << ", " << j;
      }
    }
  }
}

TEST(PackWeight, IntegerFormatsStayWithinHalfALevel) {
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt8Grouped, WeightFormat::kInt4Grouped}) {
    for (const int64_t inner : {1, 2, 31, 32, 33, 100}) {
      expect_within_half_a_level(normal_values(inner * 21, 2), format, inner, 21);
      // Scales among the denormals of f16 and of f32.
      expect_within_half_a_level(normal_values(inner * 21, 3, 0.0f, 1e-5f), format, inner, 21);
      expect_within_half_a_level(normal_values(inner * 21, 4, 0.0f, 1e-38f), format, inner, 21);
      expect_within_half_a_level(normal_values(inner * 21, 5, 0.0f, 1e5f), format, inner, 21);
    }
  }
}

TEST(PackWeight, LevelsComeBackAsTheyWere) {
  std::vector<float> values;
  for (int q = -7; q <= 7; ++q) values.push_back(0.25f * static_cast<float>(q));
  EXPECT_EQ(round_trip(values, WeightFormat::kInt4Grouped, 15, 1), values);
  values.clear();
  for (int q = -127; q <= 127; ++q) values.push_back(0.25f * static_cast<float>(q));
  EXPECT_EQ(round_trip(values, WeightFormat::kInt8, 255, 1), values);
}

TEST(PackWeight, ZerosStayZero) {
  const std::vector<float> zeros(40 * 3);
  for (const WeightFormat format : kFormats) EXPECT_EQ(round_trip(zeros, format, 40, 3), zeros);
}

TEST(PackWeight, StridesTypesAndThreadsDoNotMatter) {
  auto bits = narrowed(normal_values(70 * 41, 6), DType::kBFloat16);
  auto values = widened(bits, DType::kBFloat16);
  std::vector<float> transposed(values.size());
  for (int64_t k = 0; k < 70; ++k) {
    for (int64_t j = 0; j < 41; ++j) transposed[j * 70 + k] = values[k * 41 + j];
  }
  for (const WeightFormat format : kFormats) {
    auto expected = storage_for(format, 70, 41), other = expected;
    set_num_threads(1);
    ASSERT_TRUE(pack_weight(f32_view(values, {70, 41}), format, expected).ok());
    set_num_threads(3);
    const TensorView columns = strided_view(transposed.data(), DType::kFloat32, {70, 41}, {1, 70});
    ASSERT_TRUE(pack_weight(columns, format, other).ok());
    EXPECT_EQ(other, expected);
    ASSERT_TRUE(pack_weight(contiguous_view(bits.data(), DType::kBFloat16, {70, 41}), format, other).ok());
    EXPECT_EQ(other, expected);
  }
  set_num_threads(0);
}

TEST(PackWeight, TakesAsManyBytesAsDocumented) {
  // [64, 32]: 16, 16, 8, 8.5 and 4.5 bits a weight; of int8 64 bytes of scales and 64 of sums a panel besides.
  const int64_t weights = 64 * 32;
  EXPECT_EQ(packed_weight_size_bytes(WeightFormat::kBFloat16, 64, 32).value(), 2 * weights);
  EXPECT_EQ(packed_weight_size_bytes(WeightFormat::kFloat16, 64, 32).value(), 2 * weights);
  EXPECT_EQ(packed_weight_size_bytes(WeightFormat::kInt8, 64, 32).value(), weights + 2 * 128);
  EXPECT_EQ(packed_weight_size_bytes(WeightFormat::kInt8Grouped, 64, 32).value(), weights * 17 / 16);
  EXPECT_EQ(packed_weight_size_bytes(WeightFormat::kInt4Grouped, 64, 32).value(), weights * 9 / 16);
}

}  // namespace
}  // namespace qx::kernels
