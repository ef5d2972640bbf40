#include "quincunx/kernels/convolution/convolution.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/convolution/random_convolution.h"
#include "kernels/dispatch_targets.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(Convolution, TakesOneToThreeDimensions) {
  expect_all({{{2, 5, 13}, 7, {3}, geometry({2}, {1}, {2})},
              {{1, 17, 6, 9}, 33, {3, 2}, geometry({1, 2}, {1, 0}, {0, 3})},
              {{1, 3, 4, 5, 6}, 9, {2, 3, 2}, geometry({1, 2, 1}, {1, 1, 1}, {0, 1, 1})},
              {{1, 20, 3, 4, 5}, 18, {3, 1, 3}, geometry({1, 1, 1}, {2, 0, 1}, {0, 0, 1}, {1, 1, 2})}});
}

TEST(Convolution, TakesGroups) {
  expect_all({{{1, 12, 5, 6}, 20, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1}, {1, 1}, 4)},
              {{1, 6, 9}, 12, {3}, geometry({1}, {1}, {1}, {1}, 6)},
              {{1, 40, 4, 4}, 34, {1, 2}, geometry({1, 1}, {0, 0}, {0, 1}, {1, 1}, 2)}});
}

TEST(Convolution, TakesTransposed) {
  ConvolutionGeometry plain = geometry({2, 2}, {1, 1}, {1, 1});
  plain.transposed = true;
  ConvolutionGeometry odd = geometry({3, 2}, {0, 2}, {1, 0}, {2, 1}, 2);
  odd.transposed = true;
  odd.output_padding = {2, 1};
  ConvolutionGeometry sparse = geometry({4, 1, 2}, {0, 0, 0}, {0, 0, 0});
  sparse.transposed = true;
  expect_all({{{1, 18, 4, 5}, 17, {4, 4}, plain},
              {{2, 6, 4, 5}, 10, {2, 3}, odd},
              {{1, 5, 2, 3, 2}, 4, {2, 1, 3}, sparse},  // some outputs are under no window
              {{1, 4, 7},
               4,
               {4},
               {.stride = {2},
                .dilation = {1},
                .padding_before = {1},
                .padding_after = {1},
                .output_padding = {0},
                .groups = 4,
                .transposed = true}}});
}

TEST(Convolution, AppliesEveryEpilogue) {
  using A = ConvolutionActivation;
  const std::vector<ConvolutionCase> cases = {
      {{1, 9, 5, 6}, 21, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1})},
      {{1, 7, 5, 6}, 7, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1}, {1, 1}, 7)},
      {{1, 64, 9, 9}, 64, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1}), false, false}};
  for (const A activation : {A::kNone, A::kRelu, A::kGeluTanh, A::kGeluErf, A::kSilu, A::kHardswish, A::kClamp}) {
    for (int parts = 0; parts < 16; ++parts) {
      ConvolutionCase c = cases[static_cast<size_t>(parts) % cases.size()];
      c.channels_last = parts % 2 == 0;
      SCOPED_TRACE("activation " + std::to_string(static_cast<int>(activation)) + ", parts " + std::to_string(parts));
      RandomConvolution test(c);
      const TensorView values = test.channel_values();
      const TensorView residual = test.residual();
      test.options.activation = activation;
      test.options.clamp_low = -0.5f;
      test.options.clamp_high = 1.5f;
      test.options.scale = (parts & 1) != 0 ? &values : nullptr;
      test.options.bias = (parts & 2) != 0 ? &values : nullptr;
      test.options.residual = (parts & 4) != 0 ? &residual : nullptr;
      test.options.residual_before_activation = (parts & 8) != 0;
      test.expect_equals_reference();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Convolution, WinogradIsChosenUnlessExact) {
  ConvolutionCase c{{1, 64, 20, 22}, 64, {3, 3}, geometry({1, 1}, {1, 1}, {1, 0}), false, false};
  RandomConvolution fast(c);
  EXPECT_EQ(fast.pack().form, ConvolutionForm::kWinograd);
  fast.expect_equals_reference();
  c.exact = true;
  EXPECT_EQ(RandomConvolution(c).pack().form, ConvolutionForm::kPanels);
  c = {{2, 32, 4, 12, 10}, 64, {3, 3, 3}, geometry({1, 1, 1}, {2, 1, 1}, {0, 1, 1}), true, false};
  RandomConvolution frames(c);
  EXPECT_EQ(frames.pack().form, ConvolutionForm::kWinograd);
  frames.expect_equals_reference();
}

TEST(Convolution, KeepsNaNOfTheWindowAndNothingElse) {
  for_each_dispatch_target([] {
    RandomConvolution test({{1, 18, 6, 6}, 17, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1})});
    test.options.activation = ConvolutionActivation::kRelu;
    test.input_values()[0] = kNaN;
    ASSERT_TRUE(convolution(test.input(), test.pack(), test.output(), test.options).ok());
    for (int64_t channel = 0; channel < 17; ++channel) {
      for (int64_t pixel = 0; pixel < 36; ++pixel) {
        const bool sees = pixel / 6 < 2 && pixel % 6 < 2;
        EXPECT_EQ(std::isnan(test.output_values()[static_cast<size_t>(channel * 36 + pixel)]), sees);
      }
    }
  });
}

std::vector<float> run_with_threads(const ConvolutionCase& c, int threads) {
  RandomConvolution test(c);
  const PackedConvolutionWeight packed = test.pack();
  set_num_threads(threads);
  EXPECT_TRUE(convolution(test.input(), packed, test.output(), test.options).ok());
  set_num_threads(0);
  return test.output_values();
}

TEST(Convolution, GivesTheSameBitsForAnyNumberOfThreads) {
  ConvolutionGeometry transposed = geometry({2, 2}, {1, 1}, {1, 1});
  transposed.transposed = true;
  for (const ConvolutionCase& c :
       std::vector<ConvolutionCase>{{{1, 40, 17, 19}, 72, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1})},
                                    {{1, 40, 17, 19}, 40, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1}, {1, 1}, 40), true},
                                    {{2, 24, 9, 9}, 40, {4, 4}, transposed},
                                    {{1, 64, 20, 20}, 64, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1}), true, false}}) {
    const std::vector<float> one = run_with_threads(c, 1);
    for (const int threads : {2, 3, 5}) {
      const std::vector<float> many = run_with_threads(c, threads);
      EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0) << threads;
    }
  }
}

}  // namespace
}  // namespace qx::kernels
