#include "quincunx/kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/norm/norm_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr double kUnit = 0x1p-24;  // f32's relative rounding error

enum class Norm { kRms, kLayer };

// A sum of n terms runs in at least 16 chains: each adds n/16 roundings, joining and the final steps a few more. What
// layer_norm subtracts from the sum of squares is at most three times what is left, so relative errors grow fourfold,
// and the square root halves them.
double chain_error(int64_t n) { return 2 * (static_cast<double>(n) / 16 + 8) * kUnit; }

std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

std::vector<double> reference(Norm norm, const float* x, int64_t n, const std::vector<float>& weight,
                              const std::vector<float>& bias, double eps) {
  const std::vector<double> row(x, x + n);
  std::vector<double> y(row.size());
  if (norm == Norm::kRms) {
    rms_norm_reference(row, doubles(weight), eps, y);
  } else {
    layer_norm_reference(row, doubles(weight), doubles(bias), eps, y);
  }
  return y;
}

Status run(Norm norm, const TensorView& x, const NormOptions& options, const TensorView& y) {
  return norm == Norm::kRms ? rms_norm(x, options, y) : layer_norm(x, options, y);
}

// Rows normalised to unit size differ from the reference by the chain error, in absolute terms (the mean) and relative.
void expect_close(const float* actual, const std::vector<double>& expected, const std::vector<float>& weight,
                  double rounding = 0) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double w = weight.empty() ? 1 : std::abs(weight[i]);
    const double tolerance = chain_error(static_cast<int64_t>(expected.size())) * (w + std::abs(expected[i]));
    ASSERT_NEAR(actual[i], expected[i], tolerance + rounding * std::abs(expected[i])) << "column " << i;
  }
}

class BothNorms : public testing::TestWithParam<Norm> {};
INSTANTIATE_TEST_SUITE_P(Norms, BothNorms, testing::Values(Norm::kRms, Norm::kLayer),
                         [](const auto& info) { return std::string(info.param == Norm::kRms ? "Rms" : "Layer"); });

TEST_P(BothNorms, MatchesTheReferenceAtRaggedSizesWithAndWithoutParameters) {
  for_each_dispatch_target([&] {
    for (const int64_t n : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 100, 1000}) {
      std::vector<float> x = normal_values(3 * n, 1), weight = normal_values(n, 2), bias = normal_values(n, 3);
      for (int mask = 0; mask < 4; ++mask) {
        const bool use_weight = (mask & 1) != 0, use_bias = (mask & 2) != 0 && GetParam() == Norm::kLayer;
        NormOptions options{.eps = 1e-3};
        if (use_weight) options.weight = f32_view(weight, {n});
        if (use_bias) options.bias = f32_view(bias, {n});
        std::vector<float> y(x.size() + 1, 99);
        const Status status = run(GetParam(), f32_view(x, {3, n}), options, f32_view(y, {3, n}));
        ASSERT_TRUE(status.ok()) << status;
        const std::vector<float> w = use_weight ? weight : std::vector<float>();
        const std::vector<float> b = use_bias ? bias : std::vector<float>();
        for (int64_t row = 0; row < 3; ++row) {
          const float* x_row = x.data() + row * n;
          expect_close(y.data() + row * n, reference(GetParam(), x_row, n, w, b, 1e-3), w);
        }
        ASSERT_EQ(y.back(), 99) << "wrote beyond the output";
      }
    }
  });
}

TEST_P(BothNorms, ReadsAndWritesHalfPrecisionWithF32Sums) {
  for_each_dispatch_target([&] {
    constexpr int64_t kN = 300;
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      std::vector<uint16_t> x = narrowed(normal_values(2 * kN, 4), dtype), y(x.size());
      std::vector<uint16_t> weight = narrowed(normal_values(kN, 5), dtype);
      const std::vector<float> wide = widened(x, dtype), w = widened(weight, dtype);
      const NormOptions options{.weight = contiguous_view(weight.data(), dtype, {kN})};
      ASSERT_TRUE(
          run(GetParam(), contiguous_view(x.data(), dtype, {2, kN}), options, contiguous_view(y.data(), dtype, {2, kN}))
              .ok());
      const std::vector<float> result = widened(y, dtype);
      const double half_unit = dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;  // one final rounding
      for (int64_t row = 0; row < 2; ++row) {
        const auto expected = reference(GetParam(), &wide[static_cast<size_t>(row * kN)], kN, w, {}, 1e-5);
        expect_close(&result[static_cast<size_t>(row * kN)], expected, w, 1.01 * half_unit);
      }
    }
  });
}

TEST(LayerNorm, KeepsItsAccuracyFarFromZero) {
  for_each_dispatch_target([] {
    for (const int64_t n : {17, 768, 4096}) {
      std::vector<float> x = normal_values(n, 6, 1e4f, 1.0f), y(x.size());
      ASSERT_TRUE(layer_norm(f32_view(x, {n}), {}, f32_view(y, {n})).ok());
      expect_close(y.data(), reference(Norm::kLayer, x.data(), n, {}, {}, 1e-5), {});
    }
  });
}

TEST(LayerNorm, KeepsItsAccuracyWhereTheFirstElementLiesFarFromTheOthers) {
  for_each_dispatch_target([] {
    for (const float first : {-1e3f, 1e6f, 1e4f}) {
      std::vector<float> x = normal_values(1000, 20, 1e4f, 1.0f), y(x.size());
      x[0] = first;
      ASSERT_TRUE(layer_norm(f32_view(x, {1000}), {}, f32_view(y, {1000})).ok());
      expect_close(y.data(), reference(Norm::kLayer, x.data(), 1000, {}, {}, 1e-5), {});
    }
  });
}

TEST_P(BothNorms, FollowsStridesAndWorksInPlace) {
  for_each_dispatch_target([&] {
    // [3, 4, 20] seen with the outer dimensions exchanged, and columns two apart in memory.
    const std::vector<float> original = normal_values(3 * 4 * 40, 7);
    std::vector<float> x = original;
    const TensorView view = strided_view(x.data(), DType::kFloat32, {4, 3, 20}, {40, 160, 2});
    ASSERT_TRUE(run(GetParam(), view, {}, view).ok());
    for (size_t row = 0; row < 12; ++row) {
      std::vector<float> before, after;
      for (size_t column = 0; column < 40; ++column) {
        const size_t i = row * 40 + column;
        if (column % 2 == 1) {
          ASSERT_EQ(x[i], original[i]);
        } else {
          before.push_back(original[i]), after.push_back(x[i]);
        }
      }
      expect_close(after.data(), reference(GetParam(), before.data(), 20, {}, {}, 1e-5), {});
    }
  });
}

TEST_P(BothNorms, CarriesNaNInTheRowOnlyAndKeepsDenormals) {
  for_each_dispatch_target([&] {
    std::vector<float> x = normal_values(3 * 33, 8), y(x.size());
    x[40] = std::numeric_limits<float>::quiet_NaN();
    for (size_t i = 66; i < 99; ++i) x[i] = i % 2 == 0 ? 0x1p-140f : -0x1p-140f;
    ASSERT_TRUE(run(GetParam(), f32_view(x, {3, 33}), {.eps = 1e-5}, f32_view(y, {3, 33})).ok());
    for (size_t i = 0; i < 33; ++i) {
      EXPECT_TRUE(std::isfinite(y[i]));
      EXPECT_TRUE(std::isnan(y[33 + i]));
      EXPECT_NE(y[66 + i], 0.0f);
    }
  });
}

TEST_P(BothNorms, GivesTheSameBitsForAnyNumberOfThreads) {
  constexpr int64_t kRows = 257, kN = 300;
  std::vector<float> x = normal_values(kRows * kN, 9), one(x.size()), many(x.size());
  set_num_threads(1);
  ASSERT_TRUE(run(GetParam(), f32_view(x, {kRows, kN}), {}, f32_view(one, {kRows, kN})).ok());
  set_num_threads(3);
  ASSERT_TRUE(run(GetParam(), f32_view(x, {kRows, kN}), {}, f32_view(many, {kRows, kN})).ok());
  set_num_threads(0);
  EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0);
}

TEST_P(BothNorms, AcceptsEmptyTensors) {
  std::vector<float> none(1);
  for (const auto& shape : std::vector<std::vector<int64_t>>{{0, 5}, {3, 0}, {0}}) {
    EXPECT_TRUE(run(GetParam(), f32_view(none, shape), {}, f32_view(none, shape)).ok());
  }
}

TEST_P(BothNorms, RejectsBadInput) {
  std::vector<float> x(12), y(12), w(5);
  const TensorView in = f32_view(x, {3, 4}), out = f32_view(y, {3, 4});
  const auto message = [&](const TensorView& a, const NormOptions& options, const TensorView& b) {
    return run(GetParam(), a, options, b).message();
  };
  EXPECT_EQ(message(in, {.weight = f32_view(w, {5})}, out),
            "weight: expected one dimension of 4 elements (the last dimension of input), got float32[5]");
  EXPECT_EQ(message(in, {.weight = contiguous_view(w.data(), DType::kFloat16, {4})}, out),
            "weight: expected the dtype of input, float32, got float16[4]");
  EXPECT_EQ(message(in, {.eps = -1}, out), "eps: expected a finite number that is not negative, got -1.000000");
  EXPECT_EQ(message(in, {.eps = std::nan("")}, out), "eps: expected a finite number that is not negative, got nan");
  EXPECT_EQ(message(in, {}, f32_view(y, {4, 3})),
            "output: expected the shape of input float32[3, 4], got float32[4, 3]");
  EXPECT_EQ(message(f32_view(x, {}), {}, f32_view(y, {})), "input: expected at least one dimension, got float32[]");
  EXPECT_EQ(message(in, {.weight = f32_view(y, {4})}, out),
            "output: overlaps weight without being the same tensor (float32[3, 4] and float32[4])");
  EXPECT_EQ(message(in, {}, strided_view(y.data(), DType::kFloat32, {3, 4}, {2, 1})),
            "output: the strides of float32[3, 4] let elements share memory; expected distinct elements");
  EXPECT_EQ(message(contiguous_view(x.data(), DType::kInt32, {12}), {}, out),
            "input: expected float32, bfloat16 or float16, got int32[12]");
}

TEST_P(BothNorms, AddsAResidualInTheSamePassAndGivesTheSum) {
  for_each_dispatch_target([&] {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const int64_t n : {1, 5, 16, 33, 200}) {
        const std::vector<float> a = normal_values(3 * n, 11), b = normal_values(3 * n, 12);
        const bool is_f32 = dtype == DType::kFloat32;
        std::vector<float> x32 = a, r32 = b, sum32(a.size()), y32(a.size());
        std::vector<uint16_t> x16 = narrowed(a, dtype), r16 = narrowed(b, dtype), sum16(a.size()), y16(a.size());
        const auto view = [&](std::vector<float>& wide, std::vector<uint16_t>& narrow) {
          return is_f32 ? f32_view(wide, {3, n}) : contiguous_view(narrow.data(), dtype, {3, n});
        };
        const TensorView x = view(x32, x16), y = view(y32, y16);
        NormOptions options{.residual = view(r32, r16)};
        ASSERT_TRUE(run(GetParam(), x, options, y).ok());
        const std::vector<float> without_sum = is_f32 ? y32 : widened(y16, dtype);
        options.sum = view(sum32, sum16);
        ASSERT_TRUE(run(GetParam(), x, options, y).ok());
        const std::vector<float> sum = is_f32 ? sum32 : widened(sum16, dtype);
        const std::vector<float> result = is_f32 ? y32 : widened(y16, dtype);
        EXPECT_EQ(result, without_sum);
        const std::vector<float> left = is_f32 ? a : widened(x16, dtype), right = is_f32 ? b : widened(r16, dtype);
        for (size_t i = 0; i < sum.size(); ++i) {
          const float exact = left[i] + right[i];
          ASSERT_EQ(sum[i], is_f32 ? exact : widened(narrowed({exact}, dtype), dtype)[0]);
        }
        const double half_unit = is_f32 ? 0 : dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
        for (int64_t row = 0; row < 3; ++row) {
          const auto expected = reference(GetParam(), &sum[static_cast<size_t>(row * n)], n, {}, {}, 1e-5);
          expect_close(&result[static_cast<size_t>(row * n)], expected, {}, 1.01 * half_unit);
        }
      }
    }
  });
}

TEST_P(BothNorms, TheSumMayBeTheResidualItself) {
  std::vector<float> x = normal_values(40, 13), hidden = normal_values(40, 14), y(40);
  const std::vector<float> before = hidden;
  const TensorView residual = f32_view(hidden, {2, 20});
  ASSERT_TRUE(
      run(GetParam(), f32_view(x, {2, 20}), {.residual = residual, .sum = residual}, f32_view(y, {2, 20})).ok());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(hidden[i], x[i] + before[i]);
}

TEST_P(BothNorms, ModulatesByScaleAndShiftThatAreRepeated) {
  for_each_dispatch_target([&] {
    constexpr int64_t kN = 21;
    std::vector<float> x = normal_values(2 * 3 * kN, 15), y(x.size()), weight = normal_values(kN, 16);
    std::vector<float> scale = normal_values(2 * kN, 17), shift = normal_values(2 * kN, 18);
    for (int mask = 1; mask < 8; ++mask) {
      NormOptions options;
      if ((mask & 1) != 0) options.scale = f32_view(scale, {2, 1, kN});
      if ((mask & 2) != 0) options.shift = f32_view(shift, {2, 1, kN});
      if ((mask & 4) != 0) options.weight = f32_view(weight, {kN});
      ASSERT_TRUE(run(GetParam(), f32_view(x, {2, 3, kN}), options, f32_view(y, {2, 3, kN})).ok());
      for (size_t row = 0; row < 6; ++row) {
        std::vector<float> factors(kN, 1);
        std::vector<double> expected = reference(GetParam(), &x[row * kN], kN, {}, {}, 1e-5);
        for (size_t i = 0; i < kN; ++i) {
          const size_t at = row / 3 * kN + i;
          if (options.weight) factors[i] *= weight[i];
          if (options.scale) factors[i] *= 1 + scale[at];
          expected[i] = expected[i] * factors[i] + (options.shift ? shift[at] : 0.0);
          // The fused factor and its product round once more each.
          factors[i] = std::abs(factors[i]) + 0.2f;
        }
        expect_close(&y[row * kN], expected, factors);
      }
    }
  });
}

TEST(LayerNorm, AppliesTheScaleToTheBiasToo) {
  std::vector<float> x = normal_values(8, 19), y(8), bias(8, 2.0f), scale(8, 0.5f), shift(8, 1.0f);
  const NormOptions options{.bias = f32_view(bias, {8}), .scale = f32_view(scale, {8}), .shift = f32_view(shift, {8})};
  ASSERT_TRUE(layer_norm(f32_view(x, {8}), options, f32_view(y, {8})).ok());
  const std::vector<double> plain = reference(Norm::kLayer, x.data(), 8, {}, {}, 1e-5);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(y[i], (plain[i] + 2) * 1.5 + 1, 1e-5);
}

TEST_P(BothNorms, RejectsBadResidualsAndModulations) {
  std::vector<float> x(12), y(12), z(12);
  const TensorView in = f32_view(x, {3, 4}), out = f32_view(y, {3, 4});
  const auto message = [&](const NormOptions& options) { return run(GetParam(), in, options, out).message(); };
  EXPECT_EQ(message({.residual = f32_view(z, {4, 3})}),
            "residual: expected the shape of input float32[3, 4], got float32[4, 3]");
  EXPECT_EQ(message({.residual = contiguous_view(z.data(), DType::kFloat16, {3, 4})}),
            "residual: expected the dtype of input, float32, got float16[3, 4]");
  EXPECT_EQ(message({.sum = f32_view(z, {3, 4})}), "sum: expected a residual with it, got none");
  EXPECT_EQ(message({.residual = in, .sum = out}), "sum: is the same memory as output");
  EXPECT_EQ(message({.scale = f32_view(z, {4})}),
            "scale: expected the shape of input float32[3, 4], or 1 in place of any size but the last, got float32[4]");
  EXPECT_EQ(message({.shift = f32_view(z, {2, 4})}),
            "shift: expected the shape of input float32[3, 4], or 1 in place of any size but the last, got "
            "float32[2, 4]");
}

TEST_P(BothNorms, RejectsAParameterInTheMemoryThatTheSumIsWrittenTo) {
  std::vector<float> x(4), y(4), w(4);
  const TensorView in = f32_view(x, {4}), out = f32_view(y, {4}), weight = f32_view(w, {4});
  EXPECT_EQ(run(GetParam(), in, {.weight = weight, .residual = in}, weight).message(),
            "output: is the same memory as weight");
  EXPECT_EQ(run(GetParam(), in, {.weight = weight, .residual = in, .sum = weight}, out).message(),
            "sum: is the same memory as weight");
}

TEST(RmsNorm, RejectsABias) {
  std::vector<float> x(4), b(4);
  EXPECT_EQ(rms_norm(f32_view(x, {4}), {.bias = f32_view(b, {4})}, f32_view(x, {4})).message(),
            "bias: rms_norm takes none, got float32[4]");
}

}  // namespace
}  // namespace qx::kernels
