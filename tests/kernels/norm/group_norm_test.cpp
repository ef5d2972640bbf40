#include "quincunx/kernels/norm/group_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/norm/norm_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

struct Sizes {
  int64_t batch, channels, height, width, groups;
};

int64_t count_of(const Sizes& s) { return s.batch * s.channels * s.height * s.width; }
std::vector<int64_t> shape_of(const Sizes& s) { return {s.batch, s.channels, s.height, s.width}; }
std::vector<int64_t> last_strides(const Sizes& s) {
  return {s.height * s.width * s.channels, 1, s.width * s.channels, s.channels};
}

// Of a tensor in NCHW order.
std::vector<double> reference(const Sizes& s, const std::vector<float>& x, const std::vector<float>& weight,
                              const std::vector<float>& bias, bool silu) {
  const auto group = static_cast<size_t>(count_of(s) / (s.batch * s.groups));
  const auto channels = static_cast<size_t>(s.channels / s.groups);
  std::vector<double> y(x.size());
  for (size_t i = 0; group != 0 && i < x.size() / group; ++i) {
    const size_t first = i % static_cast<size_t>(s.groups) * channels;
    const std::vector<double> values(x.begin() + static_cast<int64_t>(i * group),
                                     x.begin() + static_cast<int64_t>((i + 1) * group));
    const std::vector<double> w(weight.begin() + static_cast<int64_t>(first),
                                weight.begin() + static_cast<int64_t>(first + channels));
    const std::vector<double> b(bias.begin() + static_cast<int64_t>(first),
                                bias.begin() + static_cast<int64_t>(first + channels));
    group_norm_reference(values, w, b, 1e-5, std::span(y).subspan(i * group, group));
  }
  for (double& value : y) value = silu ? value / (1 + std::exp(-value)) : value;
  return y;
}

// Position in channels-last memory of element i of NCHW order.
size_t last_index(const Sizes& s, size_t i) {
  const auto plane = static_cast<size_t>(s.height * s.width), channels = static_cast<size_t>(s.channels);
  const size_t p = i % plane, c = i / plane % channels, n = i / plane / channels;
  return (n * plane + p) * channels + c;
}

// Statistics are taken in blocks of at most 4096 elements in sixteen chains: 256 roundings, some more for the rest.
constexpr double kTolerance = 270 * 0x1p-24;

void expect_close(float actual, double expected, double rounding = 0) {
  ASSERT_NEAR(actual, expected, kTolerance * (2 + std::abs(expected)) + rounding * std::abs(expected));
}

constexpr Sizes kCases[] = {{1, 1, 1, 1, 1},  {2, 4, 3, 5, 2},   {1, 6, 1, 7, 3},   {2, 32, 8, 8, 32},
                            {1, 17, 9, 4, 1}, {1, 48, 5, 13, 8}, {2, 8, 65, 70, 2}, {3, 20, 17, 1, 4}};

TEST(GroupNorm, MatchesTheReferenceInBothLayoutsWithAndWithoutSilu) {
  for_each_dispatch_target([] {
    for (const Sizes& s : kCases) {
      const std::vector<float> x = normal_values(count_of(s), 1, 0.5f, 2);
      std::vector<float> weight = normal_values(s.channels, 2, 1), bias = normal_values(s.channels, 3);
      for (const bool silu : {false, true}) {
        const GroupNormOptions options{.num_groups = s.groups,
                                       .weight = f32_view(weight, {s.channels}),
                                       .bias = f32_view(bias, {s.channels}),
                                       .silu = silu};
        const std::vector<double> expected = reference(s, x, weight, bias, silu);
        std::vector<float> first = x, y(x.size() + 1, 99), last(x.size()), last_y(x.size() + 1, 99);
        ASSERT_TRUE(group_norm(f32_view(first, shape_of(s)), options, f32_view(y, shape_of(s))).ok());
        for (size_t i = 0; i < x.size(); ++i) last[last_index(s, i)] = x[i];
        const TensorView in = strided_view(last.data(), DType::kFloat32, shape_of(s), last_strides(s));
        const TensorView out = strided_view(last_y.data(), DType::kFloat32, shape_of(s), last_strides(s));
        ASSERT_TRUE(group_norm(in, options, out).ok());
        for (size_t i = 0; i < x.size(); ++i) {
          expect_close(y[i], expected[i]);
          expect_close(last_y[last_index(s, i)], expected[i]);
        }
        ASSERT_EQ(y.back(), 99);
        ASSERT_EQ(last_y.back(), 99);
      }
    }
  });
}

TEST(GroupNorm, KeepsItsAccuracyFarFromZero) {
  const Sizes s{1, 8, 40, 30, 2};
  const std::vector<float> x = normal_values(count_of(s), 4, 1e4f, 1), one(8, 1), none(8, 0);
  const std::vector<double> expected = reference(s, x, one, none, false);
  for_each_dispatch_target([&] {
    for (const bool channels_last : {false, true}) {
      std::vector<float> in(x.size()), out(x.size());
      for (size_t i = 0; i < x.size(); ++i) in[channels_last ? last_index(s, i) : i] = x[i];
      const std::vector<int64_t> strides =
          channels_last ? last_strides(s) : std::vector<int64_t>{count_of(s), s.height * s.width, s.width, 1};
      const TensorView from = strided_view(in.data(), DType::kFloat32, shape_of(s), strides);
      const TensorView to = strided_view(out.data(), DType::kFloat32, shape_of(s), strides);
      ASSERT_TRUE(group_norm(from, {.num_groups = 2}, to).ok());
      for (size_t i = 0; i < x.size(); ++i) expect_close(out[channels_last ? last_index(s, i) : i], expected[i]);
    }
  });
}

TEST(GroupNorm, KeepsItsAccuracyWhereTheFirstPositionsLieFarFromTheOthers) {
  const Sizes s{1, 20, 30, 40, 2};
  std::vector<float> x = normal_values(count_of(s), 8), last(x.size()), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] += i % 1200 < 8 ? 300.0f : 0.0f;
  const std::vector<double> expected = reference(s, x, std::vector<float>(20, 1), std::vector<float>(20, 0), false);
  for (size_t i = 0; i < x.size(); ++i) last[last_index(s, i)] = x[i];
  for_each_dispatch_target([&] {
    const TensorView in = strided_view(last.data(), DType::kFloat32, shape_of(s), last_strides(s));
    ASSERT_TRUE(
        group_norm(in, {.num_groups = 2}, strided_view(y.data(), DType::kFloat32, shape_of(s), last_strides(s))).ok());
    for (size_t i = 0; i < x.size(); ++i) expect_close(y[last_index(s, i)], expected[i]);
  });
}

// Nothing is left of them, however much larger they are than what eps makes of the deviation.
TEST(GroupNorm, TakesEqualNumbersEvenIfTheirSumIsInfinite) {
  const Sizes s{1, 4, 1, 9, 2};
  const std::vector<int64_t> plane = {36, 9, 9, 1};
  for_each_dispatch_target([&] {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const float value : {1000.3f, -60000.0f, 3e38f}) {
        if (dtype == DType::kFloat16 && value > 65504) continue;
        std::vector<float> x(36, value), y(x.size(), 99);
        std::vector<uint16_t> half_x = narrowed(x, dtype), half_y(x.size(), 99);
        const bool wide = dtype == DType::kFloat32;
        for (const std::vector<int64_t>& strides : {plane, last_strides(s)}) {
          const auto view = [&](std::vector<float>& f, std::vector<uint16_t>& h) {
            return strided_view(wide ? static_cast<void*>(f.data()) : h.data(), dtype, shape_of(s), strides);
          };
          ASSERT_TRUE(group_norm(view(x, half_x), {.num_groups = 2}, view(y, half_y)).ok());
          EXPECT_EQ(wide ? y : widened(half_y, dtype), std::vector<float>(36, 0)) << value;
        }
      }
    }
  });
}

TEST(GroupNorm, ReadsAndWritesHalfPrecisionInBothLayouts) {
  const Sizes s{2, 12, 6, 7, 3};
  for_each_dispatch_target([&] {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      std::vector<uint16_t> x = narrowed(normal_values(count_of(s), 5), dtype), y(x.size()), last(x.size()),
                            z(x.size());
      const std::vector<double> expected =
          reference(s, widened(x, dtype), std::vector<float>(12, 1), std::vector<float>(12, 0), true);
      const GroupNormOptions options{.num_groups = 3, .silu = true};
      ASSERT_TRUE(group_norm(contiguous_view(x.data(), dtype, shape_of(s)), options,
                             contiguous_view(y.data(), dtype, shape_of(s)))
                      .ok());
      for (size_t i = 0; i < x.size(); ++i) last[last_index(s, i)] = x[i];
      ASSERT_TRUE(group_norm(strided_view(last.data(), dtype, shape_of(s), last_strides(s)), options,
                             strided_view(z.data(), dtype, shape_of(s), last_strides(s)))
                      .ok());
      const double half_unit = dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
      const std::vector<float> a = widened(y, dtype), b = widened(z, dtype);
      for (size_t i = 0; i < x.size(); ++i) {
        expect_close(a[i], expected[i], 1.01 * half_unit);
        expect_close(b[last_index(s, i)], expected[i], 1.01 * half_unit);
      }
    }
  });
}

TEST(GroupNorm, FollowsOtherStridesInPlace) {
  // Every second column of a wider tensor, and channels outermost in memory.
  const std::vector<float> original = normal_values(4 * 3 * 5 * 12, 6);
  const Sizes s{3, 4, 5, 6, 2};
  for_each_dispatch_target([&] {
    std::vector<float> memory = original, x;
    const std::vector<int64_t> strides = {60, 180, 12, 2};
    std::vector<size_t> places;
    for (int64_t n = 0; n < 3; ++n) {
      for (int64_t c = 0; c < 4; ++c) {
        for (int64_t p = 0; p < 30; ++p) {
          places.push_back(static_cast<size_t>(n * 60 + c * 180 + p / 6 * 12 + p % 6 * 2));
          x.push_back(original[places.back()]);
        }
      }
    }
    const TensorView view = strided_view(memory.data(), DType::kFloat32, shape_of(s), strides);
    ASSERT_TRUE(group_norm(view, {.num_groups = 2}, view).ok());
    const auto expected = reference(s, x, std::vector<float>(4, 1), std::vector<float>(4, 0), false);
    for (size_t i = 0; i < x.size(); ++i) expect_close(memory[places[i]], expected[i]);
    for (size_t i = 1; i < memory.size(); i += 2) ASSERT_EQ(memory[i], original[i]);
  });
}

TEST(GroupNorm, CarriesNaNInTheGroupOnlyAndKeepsDenormals) {
  for_each_dispatch_target([] {
    std::vector<float> x(4 * 9, 0x1p-140f), y(x.size());
    for (size_t i = 0; i < 9; ++i) x[i] = i % 2 == 0 ? 0x1p-140f : -0x1p-140f;
    x[20] = std::numeric_limits<float>::quiet_NaN();
    ASSERT_TRUE(group_norm(f32_view(x, {1, 4, 9}), {.num_groups = 2}, f32_view(y, {1, 4, 9})).ok());
    for (size_t i = 0; i < 18; ++i) EXPECT_TRUE(std::isfinite(y[i]));
    EXPECT_NE(y[0], 0);
    for (size_t i = 18; i < 36; ++i) EXPECT_TRUE(std::isnan(y[i]));
  });
}

TEST(GroupNorm, GivesTheSameBitsForAnyNumberOfThreads) {
  const Sizes s{2, 24, 61, 33, 4};
  for (const bool channels_last : {false, true}) {
    std::vector<float> x = normal_values(count_of(s), 7), one(x.size()), many(x.size());
    const std::vector<int64_t> strides =
        channels_last ? last_strides(s)
                      : std::vector<int64_t>{s.channels * s.height * s.width, s.height * s.width, s.width, 1};
    const auto view = [&](std::vector<float>& v) {
      return strided_view(v.data(), DType::kFloat32, shape_of(s), strides);
    };
    set_num_threads(1);
    ASSERT_TRUE(group_norm(view(x), {.num_groups = 4}, view(one)).ok());
    set_num_threads(3);
    ASSERT_TRUE(group_norm(view(x), {.num_groups = 4}, view(many)).ok());
    set_num_threads(0);
    EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0);
  }
}

TEST(GroupNorm, AcceptsEmptyTensorsAndRejectsBadInput) {
  std::vector<float> x(24), y(24), w(5);
  EXPECT_TRUE(group_norm(f32_view(x, {0, 4, 3}), {.num_groups = 2}, f32_view(y, {0, 4, 3})).ok());
  EXPECT_TRUE(group_norm(f32_view(x, {2, 4, 0}), {.num_groups = 2}, f32_view(y, {2, 4, 0})).ok());
  const TensorView in = f32_view(x, {2, 4, 3}), out = f32_view(y, {2, 4, 3});
  const auto message = [&](const GroupNormOptions& options) { return group_norm(in, options, out).message(); };
  EXPECT_EQ(message({.num_groups = 3}),
            "num_groups: expected a divisor of the 4 channels of input float32[2, 4, 3], got 3");
  EXPECT_EQ(message({.num_groups = 0}),
            "num_groups: expected a divisor of the 4 channels of input float32[2, 4, 3], got 0");
  EXPECT_EQ(message({.weight = f32_view(w, {5})}),
            "weight: expected one dimension of 4 elements (the channels of input), got float32[5]");
  EXPECT_EQ(message({.eps = -1}), "eps: expected a finite number that is not negative, got -1.000000");
  EXPECT_EQ(group_norm(f32_view(x, {24}), {}, f32_view(y, {24})).message(),
            "input: expected at least two dimensions, [B, C, ...], got float32[24]");
  EXPECT_EQ(group_norm(in, {}, f32_view(y, {4, 2, 3})).message(),
            "output: expected the shape of input float32[2, 4, 3], got float32[4, 2, 3]");
}

}  // namespace
}  // namespace qx::kernels
