#include "quincunx/kernels/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "quincunx/base/float8.h"
#include "quincunx/kernels/reduce/float8_blocks.h"
#include "quincunx/kernels/reduce/reduce_reference.h"

namespace qx::kernels {
namespace {

constexpr ReduceKind kAllKinds[] = {ReduceKind::kSum,   ReduceKind::kAverage, ReduceKind::kProduct,
                                    ReduceKind::kMin,   ReduceKind::kMax,     ReduceKind::kBitAnd,
                                    ReduceKind::kBitOr, ReduceKind::kBitXor,  ReduceKind::kPreMulSum};
// None, one, and around one, two and three pairs of vectors of every width.
constexpr int64_t kCounts[] = {0, 1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000};

uint32_t next_random(uint32_t& state) { return state = state * 1664525u + 1013904223u; }

// Random bits: every value of the type, infinities, NaN and denormals among them. One element of padding in front makes
// the array misaligned for vectors.
std::vector<std::byte> random_array(DType dtype, int64_t count, uint32_t seed) {
  std::vector<std::byte> bytes(static_cast<size_t>((count + 1) * dtype_size_bytes(dtype)));
  uint32_t state = seed * 2654435761u + 1;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(next_random(state) >> 24);
  if (dtype == DType::kBool) {
    for (std::byte& byte : bytes) byte &= std::byte{1};
  }
  return bytes;
}

template <typename T>
bool same_or_both_nan(const std::byte* a, const std::byte* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T x, y;
    std::memcpy(&x, a + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    std::memcpy(&y, b + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    const auto fx = static_cast<double>(x), fy = static_cast<double>(y);
    if (std::memcmp(&x, &y, sizeof(T)) != 0 && !(std::isnan(fx) && std::isnan(fy))) return false;
  }
  return true;
}

// The bits of a NaN that comes out of two NaN may be those of either.
bool equal(DType dtype, const std::byte* a, const std::byte* b, int64_t count) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64: return same_or_both_nan<float>(a, b, dtype == DType::kFloat32 ? count : 2 * count);
    case DType::kFloat64:
    case DType::kComplex128: return same_or_both_nan<double>(a, b, dtype == DType::kFloat64 ? count : 2 * count);
    default: break;
  }
  if (has_float8_tables(dtype)) {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t pair[2] = {static_cast<uint8_t>(a[i]), static_cast<uint8_t>(b[i])};
      float values[2];
      decode_float8(dtype, pair, 2, values);
      if (pair[0] != pair[1] && !(std::isnan(values[0]) && std::isnan(values[1]))) return false;
    }
    return true;
  }
  if (dtype != DType::kBFloat16 && dtype != DType::kFloat16) {
    return std::memcmp(a, b, static_cast<size_t>(count * dtype_size_bytes(dtype))) == 0;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t x, y;
    std::memcpy(&x, a + 2 * i, 2);
    std::memcpy(&y, b + 2 * i, 2);
    const auto value = dtype == DType::kBFloat16 ? float_from_bfloat16_bits : float_from_float16_bits;
    if (x != y && !(std::isnan(value(x)) && std::isnan(value(y)))) return false;
  }
  return true;
}

TEST(Reduce, EqualsTheReferenceForEveryDtypeKindAndTarget) {
  for_each_dispatch_target([] {
    for (int d = 0; d <= static_cast<int>(DType::kComplex128); ++d) {
      const auto dtype = static_cast<DType>(d);
      const int64_t element = dtype_size_bytes(dtype);
      for (const ReduceKind kind : kAllKinds) {
        if (!check_reduce(dtype, kind).ok()) continue;
        for (const int64_t count : kCounts) {
          for (const uint32_t num_sources : {1u, 2u, 3u, 5u}) {
            std::vector<std::vector<std::byte>> arrays;
            std::vector<const void*> sources;
            for (uint32_t s = 0; s < num_sources; ++s) {
              arrays.push_back(random_array(dtype, count, s + 17 * num_sources));
            }
            for (const auto& array : arrays) sources.push_back(array.data() + element);
            std::vector<std::byte> expected(static_cast<size_t>((count + 1) * element), std::byte{0x77});
            reduce_reference(kind, dtype, sources, count, expected.data(), 0.37);
            // In place of the last source.
            reduce(kind, dtype, sources, count, arrays.back().data() + element, 0.37);
            ASSERT_TRUE(equal(dtype, arrays.back().data() + element, expected.data(), count))
                << dtype_name(dtype) << " kind " << static_cast<int>(kind) << " count " << count << " of "
                << num_sources;
          }
        }
      }
    }
  });
}

// Every value of the format, the two between neighbours that round to each, and whatever random bits are.
TEST(Float8Blocks, RoundAsTheReferenceDoes) {
  const auto expect_equal = [](DType dtype, uint8_t (*encode)(float), float (*decode)(uint8_t)) {
    std::vector<float> values;
    for (int i = 0; i < 256; ++i) {
      const float value = decode(static_cast<uint8_t>(i)), next = decode(static_cast<uint8_t>(i ^ 1));
      const float middle = value + (next - value) / 2;
      values.insert(values.end(), {value, middle, std::nextafter(middle, value), std::nextafter(middle, next)});
    }
    uint32_t state = 3;
    for (int i = 0; i < 100000; ++i) {
      const uint32_t bits = next_random(state);
      float value;
      std::memcpy(&value, &bits, 4);
      values.push_back(value);
    }
    for (const float value : values) {
      uint8_t bits = 0;
      encode_float8(dtype, &value, 1, &bits);
      if (std::isnan(value))
        EXPECT_TRUE(std::isnan(decode(bits)));
      else
        ASSERT_EQ(bits, encode(value)) << dtype_name(dtype) << " of " << value;
    }
  };
  expect_equal(DType::kFloat8E4M3FN, float8_e4m3fn_bits_from_float, float_from_float8_e4m3fn_bits);
  expect_equal(DType::kFloat8E5M2, float8_e5m2_bits_from_float, float_from_float8_e5m2_bits);
  expect_equal(DType::kFloat8E4M3FNUZ, float8_e4m3fnuz_bits_from_float, float_from_float8_e4m3fnuz_bits);
  expect_equal(DType::kFloat8E5M2FNUZ, float8_e5m2fnuz_bits_from_float, float_from_float8_e5m2fnuz_bits);
}

TEST(Reduce, WritesNothingBeyondTheCount) {
  for_each_dispatch_target([] {
    for (const int64_t count : kCounts) {
      const std::vector<float> a(static_cast<size_t>(count), 1.0f), b(static_cast<size_t>(count), 2.0f);
      std::vector<float> out(static_cast<size_t>(count) + 16, -1.0f);
      const void* sources[] = {a.data(), b.data()};
      reduce(ReduceKind::kSum, DType::kFloat32, sources, count, out.data());
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i < static_cast<size_t>(count) ? 3.0f : -1.0f);
    }
  });
}

TEST(Reduce, HalfTypesRoundOnceAtTheEnd) {
  const uint16_t large = bfloat16_bits_from_float(256.0f), one = bfloat16_bits_from_float(1.0f);
  const void* sources[] = {&large, &one, &one, &one};
  uint16_t sum = 0;
  reduce(ReduceKind::kSum, DType::kBFloat16, sources, 1, &sum);
  EXPECT_EQ(float_from_bfloat16_bits(sum), 260.0f);  // 259 lies between 258 and 260, and 260 is even
}

// As PyTorch 2.13 converts 480 to each of them.
TEST(Reduce, Float8SumsBeyondTheLargestValueFollowTheirFormat) {
  const auto sum_of = [](DType dtype, uint8_t a, uint8_t b) {
    const void* sources[] = {&a, &b};
    uint8_t sum = 0;
    reduce(ReduceKind::kSum, dtype, sources, 1, &sum);
    return sum;
  };
  EXPECT_EQ(sum_of(DType::kFloat8E4M3FN, 0x78, 0x77), 0x7e);    // 256 + 240 saturates at 448
  EXPECT_EQ(sum_of(DType::kFloat8E4M3FN, 0xf8, 0xf7), 0xfe);    // and below zero
  EXPECT_EQ(sum_of(DType::kFloat8E5M2, 0x7b, 0x7b), 0x7c);      // infinity
  EXPECT_EQ(sum_of(DType::kFloat8E4M3FNUZ, 0x7f, 0x7f), 0x80);  // NaN
}

TEST(Reduce, IntegersWrapAndTheirAverageTruncatesTowardZero) {
  const int8_t a[] = {127, -7, -128}, b[] = {1, 0, -128};
  const void* sources[] = {a, b};
  int8_t out[3];
  reduce(ReduceKind::kSum, DType::kInt8, sources, 3, out);
  EXPECT_EQ(out[0], -128);
  EXPECT_EQ(out[2], 0);
  reduce(ReduceKind::kAverage, DType::kInt8, sources, 3, out);
  EXPECT_EQ(out[1], -3);
}

TEST(Reduce, MinimumAndMaximumReturnNanFromEitherSide) {
  for_each_dispatch_target([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> a(40, 1.0f), b(40, 2.0f), out(40);
    a[3] = b[5] = a[35] = nan;
    const void* sources[] = {a.data(), b.data()};
    for (const ReduceKind kind : {ReduceKind::kMin, ReduceKind::kMax}) {
      reduce(kind, DType::kFloat32, sources, 40, out.data());
      for (int i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(out[static_cast<size_t>(i)]), i == 3 || i == 5 || i == 35);
    }
  });
}

TEST(Reduce, UndefinedPairsAreNamed) {
  const Status status = check_reduce(DType::kFloat32, ReduceKind::kBitXor);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "reduction BXOR is not defined for float32");
  EXPECT_FALSE(check_reduce(DType::kComplex64, ReduceKind::kMin).ok());
  EXPECT_FALSE(check_reduce(DType::kBool, ReduceKind::kAverage).ok());
  EXPECT_FALSE(check_reduce(DType::kInt32, ReduceKind::kPreMulSum).ok());
  EXPECT_FALSE(check_reduce(DType::kFloat8E8M0FNU, ReduceKind::kSum).ok());
}

}  // namespace
}  // namespace qx::kernels
