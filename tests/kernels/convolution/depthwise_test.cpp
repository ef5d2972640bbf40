// Depthwise convolutions, which have a kernel of their own.
#include <gtest/gtest.h>

#include "kernels/convolution/random_convolution.h"
#include "kernels/dispatch_targets.h"

namespace qx::kernels {
namespace {

TEST(Depthwise, TakesAllNumbersOfChannelsAndAnyWindow) {
  std::vector<ConvolutionCase> cases;
  for (const int64_t channels : {2, 5, 16, 29, 40}) {
    cases.push_back({{2, channels, 7, 11}, channels, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1}, {1, 1}, channels)});
    cases.push_back({{1, channels, 9, 21}, channels, {5, 5}, geometry({2, 2}, {2, 2}, {2, 2}, {1, 1}, channels)});
    cases.push_back({{1, channels, 30}, channels, {4}, geometry({1}, {3}, {0}, {2}, channels)});
  }
  cases.push_back({{1, 6, 3, 4, 5}, 6, {3, 2, 3}, geometry({1, 1, 1}, {2, 0, 1}, {0, 1, 1}, {1, 1, 1}, 6)});
  cases.push_back({{1, 4, 3, 1}, 4, {3, 7}, geometry({1, 1}, {1, 3}, {1, 3}, {1, 1}, 4)});
  expect_all(cases);
}

// Three and five taps, one or two pixels apart, have functions of their own.
TEST(Depthwise, LoadsEachColumnOnceForLinesOfAnyWidth) {
  std::vector<ConvolutionCase> cases;
  for (const int64_t width : {1, 2, 6, 7, 8, 9, 13, 14, 15, 16, 17}) {
    for (const int64_t taps : {3, 5}) {
      for (const int64_t stride : {1, 2}) {
        const int64_t before = width % 3;
        const int64_t after = taps - 1 - width % 2;
        cases.push_back({{1, 29, 3, width}, 29, {2, taps}, geometry({1, stride}, {0, before}, {1, after}, {1, 1}, 29)});
      }
    }
  }
  expect_all(cases);
}

TEST(Depthwise, KeepsNaNOfTheWindowAndNothingElse) {
  for_each_dispatch_target([] {
    RandomConvolution test({{1, 3, 5, 5}, 3, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1}, {1, 1}, 3)});
    test.input_values()[12] = std::numeric_limits<float>::quiet_NaN();  // the middle of the first channel
    ASSERT_TRUE(convolution(test.input(), test.pack(), test.output(), test.options).ok());
    for (int64_t i = 0; i < 75; ++i) {
      const int64_t y = i / 5 % 5, x = i % 5;
      const bool sees = i < 25 && y >= 1 && y <= 3 && x >= 1 && x <= 3;
      EXPECT_EQ(std::isnan(test.output_values()[static_cast<size_t>(i)]), sees) << i;
    }
  });
}

}  // namespace
}  // namespace qx::kernels
