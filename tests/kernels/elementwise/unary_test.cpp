#include "quincunx/kernels/elementwise/unary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/elementwise/unary_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

TensorView view(void* data, DType dtype, std::vector<int64_t> shape) {
  return TensorView::contiguous(data, dtype, shape).value();
}
TensorView strided(void* data, DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides) {
  return TensorView::strided(data, dtype, shape, strides).value();
}

std::vector<float> ramp(int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.37f * static_cast<float>(static_cast<int>(i % 41) - 20);
  return x;
}

// tanh's stated error.
void expect_tanh(float actual, float x) {
  EXPECT_NEAR(actual, unary_reference(UnaryFunction::kTanh, x), 2 * 0x1p-23 * std::abs(std::tanh(x))) << x;
}

TEST(ApplyUnary, HandlesEveryLengthAroundTheVectorWidth) {
  for_each_dispatch_target([] {
    for (int64_t count = 0; count <= 40; ++count) {
      const std::vector<float> x = ramp(count);
      std::vector<float> y(x.size() + 1, 7.0f);
      ASSERT_TRUE(tanh(x, std::span(y).first(x.size())).ok());
      for (size_t i = 0; i < x.size(); ++i) expect_tanh(y[i], x[i]);
      EXPECT_EQ(y.back(), 7.0f) << "wrote beyond " << count;
    }
  });
}

TEST(ApplyUnary, FollowsStridesAndWorksInPlace) {
  for_each_dispatch_target([] {
    // A transposed, every-second-column view of a 12 x 10 matrix.
    const std::vector<float> original = ramp(120);
    std::vector<float> x = original;
    const TensorView transposed = strided(x.data(), DType::kFloat32, {5, 12}, {2, 10});
    ASSERT_TRUE(apply_unary(UnaryFunction::kTanh, transposed, transposed).ok());
    for (size_t i = 0; i < x.size(); ++i) {
      if (i % 2 == 0) {
        expect_tanh(x[i], original[i]);
      } else {
        EXPECT_EQ(x[i], original[i]);
      }
    }
  });
}

TEST(ApplyUnary, ReadsAndWritesHalfPrecision) {
  for_each_dispatch_target([] {
    const std::vector<float> x = ramp(37);
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      std::vector<uint16_t> in, out(x.size()), expected;
      for (const float value : x) {
        const bool bf16 = dtype == DType::kBFloat16;
        in.push_back(bf16 ? BFloat16(value).bits : Float16(value).bits);
        const float rounded = bf16 ? float_from_bfloat16_bits(in.back()) : float_from_float16_bits(in.back());
        const float exact = std::tanh(rounded);
        expected.push_back(bf16 ? BFloat16(exact).bits : Float16(exact).bits);
      }
      const auto shape = std::vector<int64_t>{37};
      const TensorView output = view(out.data(), dtype, shape);
      ASSERT_TRUE(apply_unary(UnaryFunction::kTanh, view(in.data(), dtype, shape), output).ok());
      // Two units of f32 may tip a rounding to 16 bits by one.
      for (size_t i = 0; i < out.size(); ++i) EXPECT_LE(std::abs(out[i] - expected[i]), 1) << x[i];
    }
  });
}

TEST(ApplyUnary, GivesTheSameBitsForAnyNumberOfThreads) {
  const std::vector<float> x = ramp(100'003);
  std::vector<float> one(x.size()), many(x.size());
  set_num_threads(1);
  ASSERT_TRUE(exp(x, one).ok());
  set_num_threads(3);
  ASSERT_TRUE(exp(x, many).ok());
  set_num_threads(0);
  EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0);
}

TEST(ApplyUnary, OffersTheCommonFunctionsOnArrays) {
  const std::vector<float> x = {0.5f, 1.0f, 2.0f};
  std::vector<float> y(3);
  ASSERT_TRUE(exp(x, y).ok());
  EXPECT_FLOAT_EQ(y[1], 2.7182817f);
  ASSERT_TRUE(log(x, y).ok());
  EXPECT_FLOAT_EQ(y[2], 0.6931472f);
  ASSERT_TRUE(erf(x, y).ok());
  EXPECT_FLOAT_EQ(y[0], 0.5204999f);
  ASSERT_TRUE(sin(x, y).ok());
  EXPECT_FLOAT_EQ(y[1], 0.84147098f);
  ASSERT_TRUE(cos(x, y).ok());
  EXPECT_FLOAT_EQ(y[1], 0.54030231f);
  ASSERT_TRUE(sigmoid(x, y).ok());
  EXPECT_FLOAT_EQ(y[2], 0.88079708f);
  ASSERT_TRUE(rsqrt(x, y).ok());
  EXPECT_FLOAT_EQ(y[2], 0.70710678f);
}

TEST(ApplyUnary, KnowsEachFunctionByItsName) {
  EXPECT_EQ(unary_function_from_name("exp").value(), UnaryFunction::kExp);
  EXPECT_EQ(unary_function_from_name("gelu_tanh").value(), UnaryFunction::kGeluTanh);
  EXPECT_EQ(unary_function_from_name("softplus").value(), UnaryFunction::kSoftplus);
  EXPECT_EQ(unary_function_from_name("swish").status().message(),
            "function: expected one of exp, log, erf, tanh, sigmoid, silu, gelu_erf, gelu_tanh, sin, cos, rsqrt, relu, "
            "relu6, gelu_quick, hardsigmoid, hardswish, softplus, got 'swish'");
}

TEST(ApplyUnary, KeepsTheSignOfZeroWhereTheFunctionVanishesThere) {
  using enum UnaryFunction;
  for_each_dispatch_target([] {
    for (const auto function : {kErf, kTanh, kSin, kSilu, kGeluErf, kGeluTanh, kGeluQuick, kHardswish}) {
      std::vector<float> x(70), y(x.size());
      for (size_t i = 0; i < x.size(); i += 2) x[i] = -0.0f;
      const TensorView in = view(x.data(), DType::kFloat32, {70}), out = view(y.data(), DType::kFloat32, {70});
      ASSERT_TRUE(apply_unary(function, in, out).ok());
      EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0) << static_cast<int>(function);
      std::vector<uint16_t> half = narrowed(x, DType::kBFloat16), result(half.size());
      ASSERT_TRUE(
          apply_unary(function, view(half.data(), DType::kBFloat16, {70}), view(result.data(), DType::kBFloat16, {70}))
              .ok());
      EXPECT_EQ(half, result) << static_cast<int>(function);
    }
  });
}

TEST(ApplyGated, MultipliesTheActivatedGateAtRaggedLengths) {
  for_each_dispatch_target([] {
    for (const int64_t count : {0, 1, 7, 8, 16, 17, 40, 1023, 1025}) {
      std::vector<float> gate = ramp(count), up = ramp(count + 3), y(gate.size() + 1, 7.0f);
      const TensorView in = view(gate.data(), DType::kFloat32, {count});
      const TensorView factor = view(up.data() + 3, DType::kFloat32, {count});
      ASSERT_TRUE(apply_gated(UnaryFunction::kSilu, in, factor, view(y.data(), DType::kFloat32, {count})).ok());
      for (size_t i = 0; i < gate.size(); ++i) {
        const double exact = unary_reference(UnaryFunction::kSilu, gate[i]) * up[i + 3];
        EXPECT_NEAR(y[i], exact, 4 * 0x1p-23 * std::abs(exact)) << count;
      }
      EXPECT_EQ(y.back(), 7.0f);
    }
  });
}

// Half a unit of bf16, which has eight bits and no exponent below -126, besides the bounds of unary.h.
void expect_rounded_to_bf16(UnaryFunction function, float x, float y) {
  const double exact = unary_reference(function, x);
  const bool gelu = function == UnaryFunction::kGeluErf || function == UnaryFunction::kGeluTanh;
  double bound = gelu ? 0x1p-16 * std::abs(x) : 0x1p-13 * std::abs(exact);
  if (gelu && x >= -4) bound = std::min(bound, 0x1p-8 * std::abs(exact));
  const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
  ASSERT_NEAR(y, exact, std::ldexp(1.0, exponent - 8) + bound + 0x1p-149) << x;
}

// Every bf16 or f16 number, and a few more for a ragged end.
TEST(ApplyUnary, RoundsActivationsOfEveryHalfPrecisionNumberOnce) {
  std::vector<uint16_t> in(65536 + 21);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
  const auto count = static_cast<int64_t>(in.size());
  for_each_dispatch_target([&] {
    for (const auto function : {UnaryFunction::kRelu, UnaryFunction::kSilu, UnaryFunction::kGeluErf,
                                UnaryFunction::kGeluTanh, UnaryFunction::kSigmoid}) {
      for (const bool bf16 : {true, false}) {
        const DType dtype = bf16 ? DType::kBFloat16 : DType::kFloat16;
        std::vector<uint16_t> out(in.size());
        std::vector<float> wide, expected(in.size());
        for (const uint16_t b : in) wide.push_back(bf16 ? float_from_bfloat16_bits(b) : float_from_float16_bits(b));
        ASSERT_TRUE(apply_unary(function, strided(wide.data(), DType::kFloat32, {count}, {1}),
                                strided(expected.data(), DType::kFloat32, {count}, {1}))
                        .ok());
        ASSERT_TRUE(
            apply_unary(function, strided(in.data(), dtype, {count}, {1}), strided(out.data(), dtype, {count}, {1}))
                .ok());
        for (size_t i = 0; i < in.size(); ++i) {
          const float y = bf16 ? float_from_bfloat16_bits(out[i]) : float_from_float16_bits(out[i]);
          if (std::isnan(expected[i])) {
            ASSERT_TRUE(std::isnan(y)) << "a lost NaN: " << in[i];
          } else if (bf16 && function != UnaryFunction::kRelu && std::isfinite(wide[i])) {
            expect_rounded_to_bf16(function, wide[i], y);
          } else {
            ASSERT_EQ(out[i], bf16 ? BFloat16(expected[i]).bits : Float16(expected[i]).bits) << in[i] << " " << bf16;
          }
        }
      }
    }
  });
}

TEST(ApplyGated, TakesTheHalvesOfOneTensorInHalfPrecisionAndInPlace) {
  for_each_dispatch_target([] {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      const bool is_bf16 = dtype == DType::kBFloat16;
      std::vector<uint16_t> both;
      for (const float value : ramp(3 * 38)) both.push_back(is_bf16 ? BFloat16(value).bits : Float16(value).bits);
      const std::vector<uint16_t> before = both;
      const auto widen = [&](uint16_t b) { return is_bf16 ? float_from_bfloat16_bits(b) : float_from_float16_bits(b); };
      const TensorView gate = strided(both.data(), dtype, {3, 19}, {38, 1});
      const TensorView up = strided(both.data() + 19, dtype, {3, 19}, {38, 1});
      ASSERT_TRUE(apply_gated(UnaryFunction::kGeluErf, gate, up, gate).ok());
      for (size_t i = 0; i < both.size(); ++i) {
        if (i % 38 >= 19) {
          EXPECT_EQ(both[i], before[i]) << "changed up";
          continue;
        }
        const double exact = unary_reference(UnaryFunction::kGeluErf, widen(before[i])) * widen(before[i + 19]);
        // GELU's own error is relative to its argument.
        const double of_gelu = (is_bf16 ? 0x1p-16 : 0x1p-22) * std::abs(widen(before[i]) * widen(before[i + 19]));
        EXPECT_NEAR(widen(both[i]), exact, (is_bf16 ? 0x1.1p-8 : 0x1.1p-11) * std::abs(exact) + of_gelu + 0x1p-24);
      }
    }
  });
}

TEST(ApplyGated, RejectsBadInput) {
  std::vector<float> x(8), y(8);
  const TensorView in = view(x.data(), DType::kFloat32, {8});
  EXPECT_EQ(apply_gated(UnaryFunction::kSilu, in, view(y.data(), DType::kFloat32, {4}), in).message(),
            "up: expected the shape of gate float32[8], got float32[4]");
  EXPECT_EQ(apply_gated(UnaryFunction::kSilu, in, in, view(y.data(), DType::kFloat16, {8})).message(),
            "output: expected the dtype of gate, float32, got float16[8]");
  EXPECT_EQ(apply_gated(static_cast<UnaryFunction>(-1), in, in, in).message(),
            "function: expected a UnaryFunction, got -1");
}

TEST(ApplyUnary, RejectsBadInput) {
  std::vector<float> x(8), y(8);
  const TensorView in = view(x.data(), DType::kFloat32, {8});
  const auto message = [&](const TensorView& a, const TensorView& b) {
    return apply_unary(UnaryFunction::kExp, a, b).message();
  };
  EXPECT_EQ(message(in, view(y.data(), DType::kFloat32, {4})),
            "output: expected the shape of input float32[8], got float32[4]");
  EXPECT_EQ(message(in, view(y.data(), DType::kBFloat16, {8})),
            "output: expected the dtype of input, float32, got bfloat16[8]");
  EXPECT_EQ(message(view(x.data(), DType::kFloat64, {4}), view(y.data(), DType::kFloat64, {4})),
            "input: expected float32, bfloat16 or float16, got float64[4]");
  EXPECT_EQ(message(view(x.data(), DType::kFloat32, {4}), strided(y.data(), DType::kFloat32, {4}, {0})),
            "output: dimension 0 of float32[4] has stride 0: its elements share memory");
  EXPECT_EQ(message(view(x.data(), DType::kFloat32, {4}), view(x.data() + 1, DType::kFloat32, {4})),
            "output: overlaps input without being the same tensor (float32[4] and float32[4])");
  EXPECT_EQ(apply_unary(static_cast<UnaryFunction>(99), in, in).message(),
            "function: expected a UnaryFunction, got 99");
  EXPECT_EQ(exp(x, std::span(y).first(3)).message(), "output: expected the length of input, 8, got 3");
  DLTensor device_tensor = in.to_dlpack();
  device_tensor.device = {kDLCUDA, 0};
  EXPECT_EQ(message(TensorView::from_dlpack(device_tensor).value(), in),
            "input: must be on the CPU, got DLPack device type 2");
}

}  // namespace
}  // namespace qx::kernels
