// Dense convolutions over few channels, whose windows one pointer a run names.
#include "quincunx/kernels/convolution/lines.h"

#include <gtest/gtest.h>

#include "kernels/convolution/random_convolution.h"
#include "kernels/dispatch_targets.h"

namespace qx::kernels {
namespace {

bool takes_lines(const ConvolutionCase& c) {
  RandomConvolution test(c);
  return is_line_convolution(checked_problem(test.input(), test.pack(), test.output(), test.options).value());
}

TEST(Lines, TakesLinesOfAnyWidthAndAllNumbersOfChannels) {
  std::vector<ConvolutionCase> cases;
  for (const int64_t width : {1, 2, 4, 7, 8, 9, 14, 15, 29, 113, 230}) {
    for (const int64_t channels : {1, 8, 16, 24, 41, 48}) {
      cases.push_back({{1, 3, 2, width}, channels, {2, 3}, geometry({1, 1}, {1, 1}, {0, 1}), true});
    }
    cases.push_back({{2, 4, 5, width}, 16, {3, 5}, geometry({2, 2}, {1, 2}, {1, 3}), true});
  }
  expect_all(cases);
}

TEST(Lines, TakesPointsOfAnyNumberAsOneLine) {
  std::vector<ConvolutionCase> cases;
  for (const int64_t width : {1, 3, 8, 15, 17, 120}) {
    for (const int64_t channels : {5, 16, 56}) cases.push_back({{2, 9, 3, width}, channels, {1, 1}, {}, true});
  }
  cases.push_back({{1, 20, 7, 31}, 24, {1, 1}, geometry({1, 2}, {0, 0}, {0, 0}), true});
  expect_all(cases);
}

TEST(Lines, ReadsFramesBeforeTheInput) {
  for_each_dispatch_target([] {
    const ConvolutionGeometry causal = geometry({1, 1, 1}, {2, 1, 1}, {0, 1, 1});
    RandomConvolution whole({{1, 3, 4, 3, 17}, 16, {3, 3, 3}, causal, true});
    ASSERT_TRUE(convolution(whole.input(), whole.pack(), whole.output(), whole.options).ok());
    const int64_t plane = 3 * 17;
    const auto frames = [&](std::vector<float>& values, int64_t channels, int64_t first, int64_t count) {
      const std::vector<int64_t> shape{1, channels, count, 3, 17};
      return strided_view(values.data() + first * plane * channels, DType::kFloat32, shape, strides_of(shape, true));
    };
    std::vector<float> part(static_cast<size_t>(2 * plane * 16));
    const TensorView previous = frames(whole.input_values(), 3, 0, 2);
    whole.options.previous_frames = &previous;
    ASSERT_TRUE(
        convolution(frames(whole.input_values(), 3, 2, 2), whole.pack(), frames(part, 16, 0, 2), whole.options).ok());
    const std::vector<float> expected(whole.output_values().begin() + 2 * plane * 16, whole.output_values().end());
    EXPECT_EQ(part, expected);
  });
}

TEST(Lines, AppliesTheEpilogueOnceToPixelsThatTwoTilesCompute) {
  for_each_dispatch_target([] {
    RandomConvolution test({{1, 3, 3, 17}, 20, {3, 3}, geometry({1, 1}, {1, 1}, {1, 1}), true});
    const TensorView values = test.channel_values(), residual = test.residual();
    test.options.scale = test.options.bias = &values;
    test.options.residual = &residual;
    test.options.activation = ConvolutionActivation::kHardswish;
    test.expect_equals_reference();
  });
}

TEST(Lines, LeavesLongRunsAndGroupsToPanels) {
  EXPECT_TRUE(takes_lines({{1, 3, 9, 20}, 8, {3, 3}, {}, true}));
  EXPECT_TRUE(takes_lines({{1, 64, 9, 20}, 256, {1, 1}, {}, true}));
  EXPECT_FALSE(takes_lines({{1, 16, 9, 20}, 8, {3, 3}, {}, true}));
  EXPECT_FALSE(takes_lines({{1, 256, 9, 20}, 256, {1, 1}, {}, true}));
  EXPECT_FALSE(takes_lines({{1, 4, 9, 20}, 8, {3, 3}, geometry({1, 1}, {0, 0}, {0, 0}, {1, 1}, 2), true}));
  EXPECT_FALSE(takes_lines({{1, 3, 9, 20}, 8, {3, 3}, geometry({1, 1}, {0, 0}, {0, 0}, {1, 2}), true}));
}

}  // namespace
}  // namespace qx::kernels
