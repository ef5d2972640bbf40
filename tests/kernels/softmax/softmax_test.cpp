#include "quincunx/kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/softmax/softmax_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<double> reference(const float* x, int64_t n) {
  const std::vector<double> row(x, x + n);
  std::vector<double> y(row.size());
  softmax_reference(row, y);
  return y;
}

// x - max is rounded once, which exp turns into a relative error of |x - max| units; exp adds one ulp (two units) and,
// for its product with log2 e, at most 1.25 |x - max| units; the sum n/8 (at least eight chains), its inverse and the
// product one each.
void expect_close(const float* actual, const float* x, int64_t n, double rounding = 0) {
  const std::vector<double> expected = reference(x, n);
  double largest = x[0];
  for (int64_t i = 0; i < n; ++i) largest = std::max<double>(largest, x[i]);
  for (int64_t i = 0; i < n; ++i) {
    const double units = 2.25 * (largest - x[i]) + static_cast<double>(n) / 8 + 8;
    const double relative = std::isfinite(units) ? units * 0x1p-24 + rounding : 0;
    ASSERT_NEAR(actual[i], expected[static_cast<size_t>(i)], relative * expected[static_cast<size_t>(i)] + 0x1p-148);
  }
}

// Three roundings of numbers of the size of x - max, the logarithm of the sum within its n/8 + 8 roundings.
void expect_log_close(const float* actual, const float* x, int64_t n) {
  const std::vector<double> row(x, x + n);
  std::vector<double> expected(row.size());
  log_softmax_reference(row, expected);
  for (size_t i = 0; i < row.size(); ++i) {
    const double tolerance = (3 * std::abs(expected[i]) + static_cast<double>(n) / 8 + 16) * 0x1p-24;
    ASSERT_NEAR(actual[i], expected[i], tolerance) << i;
  }
}

TEST(Softmax, MatchesTheReferenceAtRaggedSizes) {
  for_each_dispatch_target([] {
    for (const int64_t n : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 1000}) {
      std::vector<float> x = normal_values(3 * n, 1, 0, 5), y(x.size() + 1, 99);
      ASSERT_TRUE(softmax(f32_view(x, {3, n}), f32_view(y, {3, n})).ok());
      for (int64_t row = 0; row < 3; ++row) {
        expect_close(&y[static_cast<size_t>(row * n)], &x[static_cast<size_t>(row * n)], n);
      }
      ASSERT_EQ(y.back(), 99);
    }
  });
}

TEST(Softmax, IsSafeForLargeAndTinyScores) {
  for_each_dispatch_target([] {
    std::vector<float> x = {1e4f, 1e4f - 1, 1e4f - 95, 1e4f - 200, -3e38f, 0x1p-149f}, y(6);
    ASSERT_TRUE(softmax(f32_view(x, {6}), f32_view(y, {6})).ok());
    expect_close(y.data(), x.data(), 6);
    EXPECT_GT(y[2], 0) << "a denormal probability was flushed";
  });
}

TEST(Softmax, DefinesInfinitiesAndNaN) {
  for_each_dispatch_target([] {
    for (const int64_t n : {3, 8, 21}) {
      for (const float special : {-kInfinity, kInfinity, kNaN}) {
        std::vector<float> x = normal_values(2 * n, 2), y(x.size());
        for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = -kInfinity;
        x[static_cast<size_t>(2 * n - 1)] = special;
        ASSERT_TRUE(softmax(f32_view(x, {2, n}), f32_view(y, {2, n})).ok());
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) EXPECT_TRUE(std::isnan(y[i])) << "all -inf";
        if (special == -kInfinity) {
          expect_close(&y[static_cast<size_t>(n)], &x[static_cast<size_t>(n)], n);
          EXPECT_EQ(y.back(), 0);
        } else {
          for (size_t i = static_cast<size_t>(n); i < y.size(); ++i) EXPECT_TRUE(std::isnan(y[i])) << special;
        }
      }
    }
  });
}

// Columns are computed side by side: a NaN in one must not change the small term of another, wherever the two stand.
TEST(Softmax, KeepsANaNInItsColumn) {
  constexpr int64_t kRows = 3, kColumns = 64;
  for_each_dispatch_target([] {
    for (int64_t small = 0; small < kColumns; ++small) {
      for (int64_t nan = small % 4; nan < kColumns; nan += 4) {
        if (nan == small) continue;
        std::vector<float> x(kRows * kColumns, 0), y(x.size()), logs(x.size());
        x[static_cast<size_t>(kColumns + small)] = -100;
        x[static_cast<size_t>(kColumns + nan)] = kNaN;
        ASSERT_TRUE(softmax(f32_view(x, {kRows, kColumns}), 0, f32_view(y, {kRows, kColumns})).ok());
        ASSERT_TRUE(log_softmax(f32_view(x, {kRows, kColumns}), 0, f32_view(logs, {kRows, kColumns})).ok());
        // 1 / (1 + e^-100 + 1) and its logarithm
        ASSERT_EQ(y[static_cast<size_t>(small)], 0.5f) << small << " beside " << nan;
        ASSERT_NEAR(logs[static_cast<size_t>(small)], -0.69314718056, 0x1p-23) << small << " beside " << nan;
        EXPECT_TRUE(std::isnan(y[static_cast<size_t>(nan)]) && std::isnan(logs[static_cast<size_t>(nan)]));
      }
    }
  });
}

TEST(Softmax, FollowsStridesAndWorksInPlace) {
  for_each_dispatch_target([] {
    const std::vector<float> original = normal_values(6 * 19, 3);
    std::vector<float> x = original;
    const TensorView columns = strided_view(x.data(), DType::kFloat32, {19, 6}, {1, 19});
    ASSERT_TRUE(softmax(columns, columns).ok());
    for (size_t column = 0; column < 19; ++column) {
      std::vector<float> before, after;
      for (size_t i = column; i < x.size(); i += 19) {
        before.push_back(original[i]);
        after.push_back(x[i]);
      }
      expect_close(after.data(), before.data(), 6);
    }
  });
}

TEST(Softmax, ReadsAndWritesHalfPrecision) {
  for_each_dispatch_target([] {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      std::vector<uint16_t> x = narrowed(normal_values(50, 4), dtype), y(x.size());
      ASSERT_TRUE(softmax(contiguous_view(x.data(), dtype, {50}), contiguous_view(y.data(), dtype, {50})).ok());
      // Below 2^-14 the spacing of float16 is absolute: exp(-6) / 50 is about 2^-14.
      const double half_unit = dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-10;
      expect_close(widened(y, dtype).data(), widened(x, dtype).data(), 50, half_unit);
    }
  });
}

// Half a unit of bf16, which has eight bits and no exponent below -126, and 2^-14 for both terms of the quotient.
double bfloat16_tolerance(double exact) {
  const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
  return std::ldexp(1.0, exponent - 8) + 0x1p-14 * exact + 0x1p-149;
}

// Rows {x, 0} of every finite x.
TEST(Softmax, RoundsEveryBFloat16DifferenceWithinItsBound) {
  std::vector<uint16_t> x;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    if ((bits & 0x7f80) == 0x7f80) continue;
    x.push_back(static_cast<uint16_t>(bits));
    x.push_back(0);
  }
  const auto rows = static_cast<int64_t>(x.size()) / 2;
  for_each_dispatch_target([&] {
    std::vector<uint16_t> y(x.size());
    ASSERT_TRUE(softmax(contiguous_view(x.data(), DType::kBFloat16, {rows, 2}),
                        contiguous_view(y.data(), DType::kBFloat16, {rows, 2}))
                    .ok());
    const std::vector<float> from = widened(x, DType::kBFloat16), to = widened(y, DType::kBFloat16);
    for (size_t r = 0; r < to.size(); r += 2) {
      const double x_term = 1 / (1 + std::exp(-static_cast<double>(from[r])));
      const double zero_term = 1 / (1 + std::exp(static_cast<double>(from[r])));
      ASSERT_NEAR(to[r], x_term, bfloat16_tolerance(x_term)) << from[r];
      ASSERT_NEAR(to[r + 1], zero_term, bfloat16_tolerance(zero_term)) << from[r];
    }
  });
}

// Half precision subtracts the largest of the first elements only, unless later ones are much larger.
TEST(Softmax, FindsLaterMaximaInHalfPrecision) {
  for_each_dispatch_target([] {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      for (const float later : {5.0f, 16.0f, 30.0f, 95.0f, 1000.0f, -1000.0f}) {
        std::vector<float> wide = normal_values(500, 9);
        for (size_t i = 400; i < 420; ++i) wide[i] += later;
        std::vector<uint16_t> x = narrowed(wide, dtype), y(x.size()), logs(x.size());
        ASSERT_TRUE(softmax(contiguous_view(x.data(), dtype, {500}), contiguous_view(y.data(), dtype, {500})).ok());
        ASSERT_TRUE(
            log_softmax(contiguous_view(x.data(), dtype, {500}), 0, contiguous_view(logs.data(), dtype, {500})).ok());
        const std::vector<double> exact = reference(widened(x, dtype).data(), 500);
        const std::vector<float> actual = widened(y, dtype), actual_logs = widened(logs, dtype);
        const double unit = dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-10;
        for (size_t i = 0; i < 500; ++i) {
          ASSERT_NEAR(actual[i], exact[i], unit * exact[i] + 0x1p-24) << later << " " << i;
          if (exact[i] > 0) {
            ASSERT_NEAR(actual_logs[i], std::log(exact[i]), unit * -std::log(exact[i]) + 1e-5);
          }
        }
      }
    }
  });
}

// Of a probability near 1, wherever it stands.
TEST(Softmax, KeepsLogarithmsNearZeroInHalfPrecision) {
  for_each_dispatch_target([] {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      for (const size_t place : {size_t{0}, size_t{130}, size_t{299}}) {
        for (const float score : {8.0f, 10.0f, 13.0f, 16.0f}) {
          std::vector<float> wide(300);
          wide[place] = score;
          std::vector<uint16_t> x = narrowed(wide, dtype), y(x.size());
          ASSERT_TRUE(
              log_softmax(contiguous_view(x.data(), dtype, {300}), 0, contiguous_view(y.data(), dtype, {300})).ok());
          const double exact = -std::log1p(299 * std::exp(-static_cast<double>(score)));
          const double unit = dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-10;
          ASSERT_NEAR(widened(y, dtype)[place], exact, unit * -exact + 0x1p-22) << place << " " << score;
        }
      }
    }
  });
}

// The chain that holds the term 1 loses what is below 2^-24 of it: of equal terms at most a sixteenth, as there are 16
// chains. Beside it the sum, its logarithm and the terms round; the terms err by 2.25 |x - max| + 2 units as above.
TEST(Softmax, KeepsLogarithmsNearZeroWhereverTheyStand) {
  for_each_dispatch_target([] {
    for (const size_t count : {size_t{1000}, size_t{32000}}) {
      for (const size_t place : {size_t{0}, size_t{255}, size_t{256}, size_t{300}, count - 1}) {
        for (const double wanted : {1e-1, 1e-5, 1e-6, 1e-7, 1e-8}) {
          std::vector<float> x(count), y(count);
          x[place] = static_cast<float>(std::log(static_cast<double>(count - 1) / wanted));
          ASSERT_TRUE(
              log_softmax(f32_view(x, {static_cast<int64_t>(count)}), 0, f32_view(y, {static_cast<int64_t>(count)}))
                  .ok());
          const double exact = -std::log1p(static_cast<double>(count - 1) * std::exp(-static_cast<double>(x[place])));
          ASSERT_NEAR(y[place], exact, -exact / 16 + 0x1p-22) << count << " at " << place;
          ASSERT_NEAR(y[1], exact - x[place], 2 * x[place] * 0x1p-24 - exact / 16 + 0x1p-22);
        }
      }
    }
  });
}

// Along each dimension of [3, 19, 37], dense and with the outer dimensions exchanged, by both functions.
TEST(Softmax, RunsAlongAnyDimensionInAnyLayout) {
  const std::vector<float> original = normal_values(3 * 19 * 37, 6, 0, 4);
  for_each_dispatch_target([&] {
    for (const bool exchanged : {false, true}) {
      const std::vector<int64_t> shape = exchanged ? std::vector<int64_t>{19, 3, 37} : std::vector<int64_t>{3, 19, 37};
      const std::vector<int64_t> strides =
          exchanged ? std::vector<int64_t>{37, 19 * 37, 1} : std::vector<int64_t>{19 * 37, 37, 1};
      for (int dim = -3; dim < 3; ++dim) {
        std::vector<float> x = original, y(x.size()), logs(x.size());
        const auto view = [&](std::vector<float>& v) {
          return strided_view(v.data(), DType::kFloat32, shape, strides);
        };
        ASSERT_TRUE(log_softmax(view(x), dim, view(logs)).ok());
        ASSERT_TRUE(softmax(view(x), dim, view(y)).ok());
        ASSERT_TRUE(softmax(view(x), dim, view(x)).ok());
        EXPECT_EQ(x, y) << "in place";
        const auto d = static_cast<size_t>(dim < 0 ? dim + 3 : dim);
        const auto step = static_cast<size_t>(strides[d]), count = static_cast<size_t>(shape[d]);
        for (size_t first = 0; first < x.size(); ++first) {
          if (first / step % count != 0) continue;
          std::vector<float> before, after, after_log;
          for (size_t i = 0; i < count; ++i) {
            before.push_back(original[first + i * step]);
            after.push_back(y[first + i * step]);
            after_log.push_back(logs[first + i * step]);
          }
          expect_close(after.data(), before.data(), static_cast<int64_t>(count));
          expect_log_close(after_log.data(), before.data(), static_cast<int64_t>(count));
        }
      }
    }
  });
}

TEST(Softmax, RunsDownColumnsInHalfPrecisionAndWithSpecialValues) {
  for_each_dispatch_target([] {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      std::vector<float> values = normal_values(7 * 70, 8);
      values[70] = kNaN;
      for (size_t r = 0; r < 7; ++r) values[r * 70 + 1] = -kInfinity;
      values[2] = -kInfinity;
      std::vector<uint16_t> x = narrowed(values, dtype), y(x.size());
      ASSERT_TRUE(
          softmax(contiguous_view(x.data(), dtype, {7, 70}), 0, contiguous_view(y.data(), dtype, {7, 70})).ok());
      const std::vector<float> in = widened(x, dtype), out = widened(y, dtype);
      for (size_t r = 0; r < 7; ++r) {
        EXPECT_TRUE(std::isnan(out[r * 70]));
        EXPECT_TRUE(std::isnan(out[r * 70 + 1]));
      }
      EXPECT_EQ(out[2], 0);
      for (size_t c = 3; c < 70; ++c) {
        std::vector<float> before, after;
        for (size_t r = 0; r < 7; ++r) before.push_back(in[r * 70 + c]), after.push_back(out[r * 70 + c]);
        expect_close(after.data(), before.data(), 7, dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-10);
      }
    }
  });
}

TEST(LogSoftmax, MatchesTheReferenceAtRaggedSizesAndForLargeScores) {
  for_each_dispatch_target([] {
    for (const int64_t n : {1, 2, 7, 8, 9, 16, 17, 33, 100, 1000}) {
      std::vector<float> x = normal_values(n, 9, 0, 30), y(x.size() + 1, 99);
      x[0] = 1e4f;
      ASSERT_TRUE(log_softmax(f32_view(x, {n}), 0, f32_view(y, {n})).ok());
      expect_log_close(y.data(), x.data(), n);
      ASSERT_EQ(y.back(), 99);
    }
    std::vector<float> x = {-kInfinity, 1, 2}, y(3);
    ASSERT_TRUE(log_softmax(f32_view(x, {3}), 0, f32_view(y, {3})).ok());
    EXPECT_EQ(y[0], -kInfinity);
    for (const float special : {kInfinity, kNaN}) {
      x[1] = special;
      ASSERT_TRUE(log_softmax(f32_view(x, {3}), 0, f32_view(y, {3})).ok());
      for (const float each : y) EXPECT_TRUE(std::isnan(each));
    }
  });
}

TEST(Softmax, GivesTheSameBitsForAnyNumberOfThreads) {
  std::vector<float> x = normal_values(300 * 301, 5), one(x.size()), many(x.size());
  set_num_threads(1);
  ASSERT_TRUE(softmax(f32_view(x, {300, 301}), f32_view(one, {300, 301})).ok());
  set_num_threads(3);
  ASSERT_TRUE(softmax(f32_view(x, {300, 301}), f32_view(many, {300, 301})).ok());
  EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0);
  ASSERT_TRUE(softmax(f32_view(x, {300, 301}), 0, f32_view(many, {300, 301})).ok());
  set_num_threads(1);
  ASSERT_TRUE(softmax(f32_view(x, {300, 301}), 0, f32_view(one, {300, 301})).ok());
  set_num_threads(0);
  EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0);
}

TEST(Softmax, AcceptsEmptyTensorsAndRejectsBadInput) {
  std::vector<float> x(12), y(12);
  EXPECT_TRUE(softmax(f32_view(x, {0, 5}), f32_view(y, {0, 5})).ok());
  EXPECT_TRUE(softmax(f32_view(x, {5, 0}), f32_view(y, {5, 0})).ok());
  EXPECT_EQ(softmax(f32_view(x, {}), f32_view(y, {})).message(),
            "input: expected at least one dimension, got float32[]");
  EXPECT_EQ(softmax(f32_view(x, {3, 4}), 2, f32_view(y, {3, 4})).message(), "dim: expected -2 to 1, got 2");
  EXPECT_EQ(log_softmax(f32_view(x, {3, 4}), -3, f32_view(y, {3, 4})).message(), "dim: expected -2 to 1, got -3");
  EXPECT_EQ(softmax(f32_view(x, {12}), f32_view(y, {3, 4})).message(),
            "output: expected the shape of input float32[12], got float32[3, 4]");
  EXPECT_EQ(softmax(f32_view(x, {6}), contiguous_view(y.data(), DType::kFloat16, {6})).message(),
            "output: expected the dtype of input, float32, got float16[6]");
  EXPECT_EQ(softmax(contiguous_view(x.data(), DType::kInt8, {6}), f32_view(y, {6})).message(),
            "input: expected float32, bfloat16 or float16, got int8[6]");
}

}  // namespace
}  // namespace qx::kernels
