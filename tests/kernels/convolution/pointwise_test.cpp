// 1 x 1 convolutions of small images, which are gemm's.
#include "quincunx/kernels/convolution/pointwise.h"

#include <gtest/gtest.h>

#include "kernels/convolution/random_convolution.h"
#include "kernels/dispatch_targets.h"

namespace qx::kernels {
namespace {

bool takes_product(const ConvolutionCase& c) {
  RandomConvolution test(c);
  return is_pointwise(checked_problem(test.input(), test.pack(), test.output(), test.options).value());
}

TEST(Pointwise, TakesAllNumbersOfPixelsAndChannels) {
  std::vector<ConvolutionCase> cases;
  for (const int64_t pixels : {1, 2, 7, 16}) {
    for (const int64_t channels : {1, 8, 17, 70}) cases.push_back({{3, 37, pixels}, channels, {1}, {}, true});
  }
  cases.push_back({{2, 800, 4, 4}, 20, {1, 1}, {}, true});
  cases.push_back({{1, 37, 7, 1}, 20, {1, 1}, geometry({2, 1}, {0, 0}, {0, 0}), true});
  expect_all(cases);
}

TEST(Pointwise, AddsAResidualAfterTheActivation) {
  for_each_dispatch_target([] {
    for (const int64_t images : {1, 3}) {
      RandomConvolution test({{images, 40, 2, 3}, 24, {1, 1}, {}, true});
      const TensorView bias = test.channel_values(), residual = test.residual();
      test.options.bias = &bias;
      test.options.residual = &residual;
      test.options.activation = ConvolutionActivation::kSilu;
      test.expect_equals_reference();
    }
  });
}

TEST(Pointwise, WritesToChannelsThatAreApart) {
  const ConvolutionCase planes{{2, 40, 3, 5}, 24, {1, 1}, {}, false};
  EXPECT_FALSE(takes_product(planes)) << "the input is copied first";
  for_each_dispatch_target([&] {
    RandomConvolution test(planes);
    const TensorView bias = test.channel_values(), residual = test.residual();
    test.options.bias = &bias;
    test.options.residual = &residual;
    test.expect_equals_reference();
  });
}

TEST(Pointwise, LeavesPaddingUnevenPixelsAndOtherEpilogues) {
  EXPECT_TRUE(takes_product({{1, 8, 4, 4}, 8, {1, 1}, {}, true}));
  EXPECT_FALSE(takes_product({{1, 8, 4, 5}, 8, {1, 1}, {}, true}));
  EXPECT_FALSE(takes_product({{1, 8, 4, 4}, 8, {1, 1}, geometry({2, 2}, {0, 0}, {0, 0}), true}));
  EXPECT_FALSE(takes_product({{1, 8, 2, 2}, 8, {1, 1}, geometry({1, 1}, {1, 1}, {1, 1}), true}));
  RandomConvolution test({{1, 8, 4, 4}, 8, {1, 1}, {}, true});
  test.options.activation = ConvolutionActivation::kHardswish;
  EXPECT_FALSE(is_pointwise(checked_problem(test.input(), test.pack(), test.output(), test.options).value()));
}

TEST(Pointwise, GivesTheSameBitsForAnImageAndABatch) {
  for_each_dispatch_target([] {
    RandomConvolution batch({{5, 33, 2, 2}, 19, {1, 1}, {}, true});
    ASSERT_TRUE(convolution(batch.input(), batch.pack(), batch.output(), batch.options).ok());
    std::vector<float> image(4 * 19);
    const std::vector<int64_t> in{1, 33, 2, 2}, out{1, 19, 2, 2};
    const TensorView input =
        strided_view(batch.input_values().data() + 4 * 33 * 4, DType::kFloat32, in, strides_of(in, true));
    const TensorView output = strided_view(image.data(), DType::kFloat32, out, strides_of(out, true));
    ASSERT_TRUE(convolution(input, batch.pack(), output, batch.options).ok());
    EXPECT_EQ(image, std::vector<float>(batch.output_values().end() - 4 * 19, batch.output_values().end()));
  });
}

}  // namespace
}  // namespace qx::kernels
