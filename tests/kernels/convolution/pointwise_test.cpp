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

// Frames of a video with adjacent channels whose planes do not join, and what each of them takes.
struct ApartFrames {
  static constexpr int64_t kFrames = 4, kPixels = 6, kIn = 70, kOut = 50;
  static TensorView view(std::vector<float>& values, int64_t images, int64_t channels, int64_t frames) {
    const int64_t frame = kPixels * channels * 2 + 3;
    return strided_view(values.data(), DType::kFloat32, {images, channels, frames, 2, 3},
                        {frame * kFrames, 1, frame, 3 * channels, channels});
  }
  static std::vector<float> room(int64_t images, int64_t channels) {
    return std::vector<float>(static_cast<size_t>(images * kFrames * (kPixels * channels * 2 + 3)), 7.0f);
  }
};

TEST(Pointwise, FramesThatAreApartGiveTheBitsOfEachAlone) {
  using F = ApartFrames;
  for_each_dispatch_target([] {
    for (const bool input_apart : {true, false}) {
      SCOPED_TRACE(input_apart ? "frames of the input are apart" : "frames of output and residual are apart");
      RandomConvolution test({{2, F::kIn, F::kFrames, 2, 3}, F::kOut, {1, 1, 1}, {}, true});
      const TensorView bias = test.channel_values();
      test.options.bias = &bias;
      test.options.activation = ConvolutionActivation::kSilu;
      const PackedConvolutionWeight packed = test.pack();
      std::vector<float> input = normal_values(static_cast<int64_t>(F::room(2, F::kIn).size()), 5);
      std::vector<float> output = F::room(2, F::kOut);
      std::vector<float> residual = normal_values(static_cast<int64_t>(output.size()), 6);
      const TensorView x = input_apart ? F::view(input, 2, F::kIn, F::kFrames) : test.input();
      const TensorView y = input_apart ? test.output() : F::view(output, 2, F::kOut, F::kFrames);
      const TensorView z = input_apart ? test.residual() : F::view(residual, 2, F::kOut, F::kFrames);
      test.options.residual = &z;
      EXPECT_TRUE(is_pointwise(checked_problem(x, packed, y, test.options).value()));
      ASSERT_TRUE(convolution(x, packed, y, test.options).ok());
      for (int64_t image = 0; image < 2; ++image) {
        for (int64_t frame = 0; frame < F::kFrames; ++frame) {
          const auto part = [&](const TensorView& view) {
            return view.slice(0, image, image + 1).value().slice(2, frame, frame + 1).value();
          };
          std::vector<float> alone(F::kPixels * F::kOut), whole(alone.size());
          const std::vector<int64_t> shape{1, F::kOut, 1, 2, 3};
          const TensorView single = strided_view(alone.data(), DType::kFloat32, shape, strides_of(shape, true));
          const TensorView copied = strided_view(whole.data(), DType::kFloat32, shape, strides_of(shape, true));
          const TensorView added = part(z);
          ConvolutionOptions options = test.options;
          options.residual = &added;
          ASSERT_TRUE(convolution(part(x), packed, single, options).ok());
          ASSERT_TRUE(next_frames(nullptr, part(y), copied).ok());
          EXPECT_EQ(whole, alone) << "image " << image << ", frame " << frame;
        }
      }
    }
  });
}

TEST(Pointwise, RepeatedPixelsHaveNoStep) {
  ImageLayout layout;
  for (const SpatialSizes& strides : {SpatialSizes{0, 32, 8}, {32, 0, 8}, {32, 8, 0}}) {
    layout.strides = strides;
    EXPECT_EQ(even_step(layout, {2, 4, 4}, {1, 1, 1}), 0);
  }
  EXPECT_EQ(even_step(layout, {1, 4, 1}, {1, 2, 1}), 16);
}

TEST(Pointwise, ReadsExpandedImages) {
  for_each_dispatch_target([] {
    for (const int64_t channels : {8, 70}) {
      for (const int64_t height : {4, 8}) {  // few pixels and many
        RandomConvolution test({{1, channels, height, 4}, 20, {1, 1}, {}, true});
        const TensorView column = strided_view(test.input_values().data(), DType::kFloat32, {1, channels, height, 4},
                                               {channels * height, 1, channels, 0});
        ASSERT_TRUE(convolution(column, test.pack(), test.output(), test.options).ok());
        const std::vector<float> expanded = test.output_values();
        // The same pixels as they would lie without repetition.
        std::vector<float>& values = test.input_values();
        const std::vector<float> pixels(values.begin(), values.begin() + channels * height);
        for (int64_t y = 0; y < height; ++y) {
          for (int64_t i = 0; i < 4 * channels; ++i) {
            values[static_cast<size_t>(y * 4 * channels + i)] =
                pixels[static_cast<size_t>(y * channels + i % channels)];
          }
        }
        test.expect_equals_reference();
        for (size_t i = 0; i < expanded.size(); ++i) ASSERT_NEAR(expanded[i], test.output_values()[i], 1e-4f);
      }
    }
  });
}

}  // namespace
}  // namespace qx::kernels
