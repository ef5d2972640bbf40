#include "quincunx/kernels/winograd_convolution/winograd_convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/winograd_convolution/winograd_convolution_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

struct Problem {
  int64_t batch, in_channels, out_channels, height, width;
  WinogradPadding padding = {1, 1, 1, 1};

  std::vector<int64_t> input_shape() const { return {batch, in_channels, height, width}; }
  std::vector<int64_t> output_shape() const {
    return {batch, out_channels, height + padding.top + padding.bottom - 2, width + padding.left + padding.right - 2};
  }
};

int64_t count(const std::vector<int64_t>& shape) { return shape[0] * shape[1] * shape[2] * shape[3]; }

enum class Layout { kChannelsLast, kChannelsFirst };

TensorView image(std::vector<float>& values, const std::vector<int64_t>& shape, Layout layout) {
  if (layout == Layout::kChannelsFirst) return f32_view(values, shape);
  return strided_view(values.data(), DType::kFloat32, shape,
                      {shape[1] * shape[2] * shape[3], 1, shape[3] * shape[1], shape[1]});
}

struct Operands {
  std::vector<float> input, weight, bias, residual;

  explicit Operands(const Problem& p)
      : input(normal_values(count(p.input_shape()), 1)),
        weight(normal_values(p.out_channels * p.in_channels * 9, 2)),
        bias(normal_values(p.out_channels, 3)),
        residual(normal_values(count(p.output_shape()), 4)) {}
};

TensorView weight_view(const Problem& p, std::vector<float>& weight) {
  return f32_view(weight, {p.out_channels, p.in_channels, 3, 3});
}

struct Packed {
  std::vector<float> storage;
  WinogradWeight weight;

  Packed(const TensorView& view, int64_t tile) {
    storage.resize(static_cast<size_t>(winograd_weight_size(tile, view.size(1), view.size(0)).value()));
    weight = pack_winograd_weight(view, tile, storage).value();
  }
};

std::vector<float> convolve(const Problem& p, Operands& operands, int64_t tile, WinogradOptions options = {},
                            Layout layout = Layout::kChannelsLast) {
  options.padding = p.padding;
  std::vector<float> output(static_cast<size_t>(count(p.output_shape())), 7.0f);
  const Packed packed(weight_view(p, operands.weight), tile);
  const Status status = winograd_convolution(image(operands.input, p.input_shape(), layout), packed.weight,
                                             image(output, p.output_shape(), layout), options);
  EXPECT_TRUE(status.ok()) << status;
  return output;
}

// What the header states: relative to the largest output, here before the epilogue.
constexpr double kLargestError = 2e-5;

void expect_near_reference(const Problem& p, Operands& operands, WinogradOptions options,
                           const std::vector<float>& output, Layout layout) {
  options.padding = p.padding;
  std::vector<double> expected(output.size());
  const TensorView input = image(operands.input, p.input_shape(), layout);
  const TensorView weight = weight_view(p, operands.weight);
  winograd_reference(input, weight, options, expected.data());
  double largest = 1.0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  auto copy = output;
  const TensorView view = image(copy, p.output_shape(), layout);
  size_t i = 0;
  for (int64_t n = 0; n < view.size(0); ++n) {
    for (int64_t k = 0; k < view.size(1); ++k) {
      for (int64_t y = 0; y < view.size(2); ++y) {
        for (int64_t x = 0; x < view.size(3); ++x, ++i) {
          const float value =
              view.data_as<float>()[n * view.stride(0) + k * view.stride(1) + y * view.stride(2) + x * view.stride(3)];
          ASSERT_NEAR(value, expected[i], kLargestError * largest)
              << n << ", " << k << ", " << y << ", " << x << " of " << view.to_string();
        }
      }
    }
  }
}

TEST(WinogradConvolution, EqualsTheReferenceForAllSizes) {
  const Problem problems[] = {
      {1, 1, 1, 1, 1},   {1, 1, 1, 4, 4},     {2, 3, 5, 7, 9},    {1, 16, 16, 8, 8},   {1, 17, 33, 5, 6},
      {3, 31, 15, 2, 3}, {1, 32, 48, 14, 14}, {1, 20, 64, 3, 29}, {2, 40, 16, 18, 17},
  };
  for_each_dispatch_target([&] {
    for (const Problem& p : problems) {
      Operands operands(p);
      for (const int64_t tile : {2, 4}) {
        for (const Layout layout : {Layout::kChannelsLast, Layout::kChannelsFirst}) {
          expect_near_reference(p, operands, {}, convolve(p, operands, tile, {}, layout), layout);
        }
      }
    }
  });
}

TEST(WinogradConvolution, TakesAnyPadding) {
  const WinogradPadding paddings[] = {{0, 0, 0, 0}, {2, 0, 0, 3}, {0, 5, 7, 0}, {9, 9, 9, 9}};
  for_each_dispatch_target([&] {
    for (const WinogradPadding& padding : paddings) {
      const Problem p{1, 18, 19, 6, 5, padding};
      Operands operands(p);
      for (const int64_t tile : {2, 4}) {
        expect_near_reference(p, operands, {}, convolve(p, operands, tile), Layout::kChannelsLast);
      }
    }
  });
}

TEST(WinogradConvolution, AppliesEveryEpilogue) {
  const Problem p{1, 16, 21, 6, 5};
  Operands operands(p);
  const TensorView bias = f32_view(operands.bias, {p.out_channels});
  for_each_dispatch_target([&] {
    for (const auto activation :
         {Activation::kNone, Activation::kRelu, Activation::kGeluTanh, Activation::kGeluErf, Activation::kSilu}) {
      for (int parts = 0; parts < 16; ++parts) {
        const Layout layout = (parts & 1) != 0 ? Layout::kChannelsFirst : Layout::kChannelsLast;
        const TensorView residual = image(operands.residual, p.output_shape(), layout);
        WinogradOptions options;
        options.activation = activation;
        options.bias = (parts & 2) != 0 ? &bias : nullptr;
        options.residual = (parts & 4) != 0 ? &residual : nullptr;
        options.residual_before_activation = (parts & 8) != 0;
        expect_near_reference(p, operands, options, convolve(p, operands, 4, options, layout), layout);
      }
    }
  });
}

TEST(WinogradConvolution, LayoutsAndStridesGiveTheSameBits) {
  const Problem p{2, 5, 18, 9, 10};
  Operands operands(p);
  const std::vector<float> expected = convolve(p, operands, 4, {}, Layout::kChannelsFirst);
  const Packed packed(weight_view(p, operands.weight), 4);
  // Every second channel, rows in reverse and columns far apart; the output has its columns outermost.
  const std::vector<int64_t> shape = p.input_shape();
  std::vector<float> spread(static_cast<size_t>(count(shape)) * 2 * 3);
  const std::vector<int64_t> strides{shape[1] * 2 * shape[2] * shape[3] * 3, 2 * shape[2] * shape[3] * 3, -shape[3] * 3,
                                     3};
  float* origin = spread.data() + (shape[2] - 1) * shape[3] * 3;
  size_t i = 0;
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t c = 0; c < shape[1]; ++c) {
      for (int64_t y = 0; y < shape[2]; ++y) {
        for (int64_t x = 0; x < shape[3]; ++x) {
          origin[n * strides[0] + c * strides[1] + y * strides[2] + x * strides[3]] = operands.input[i++];
        }
      }
    }
  }
  std::vector<float> turned(expected.size());
  const TensorView output = strided_view(turned.data(), DType::kFloat32, p.output_shape(), {18 * 90, 90, 1, 9});
  WinogradOptions options;
  options.padding = p.padding;
  ASSERT_TRUE(
      winograd_convolution(strided_view(origin, DType::kFloat32, shape, strides), packed.weight, output, options).ok());
  for (int64_t plane = 0; plane < 36; ++plane) {
    for (int64_t y = 0; y < 9; ++y) {
      for (int64_t x = 0; x < 10; ++x) {
        ASSERT_EQ(turned[plane * 90 + x * 9 + y], expected[plane * 90 + y * 10 + x]);
      }
    }
  }
}

TEST(WinogradConvolution, AnyStridesOfTheWeightGiveTheSameBits) {
  const Problem p{1, 7, 20, 5, 5};
  Operands operands(p);
  // [3, 3, in, out] in memory.
  std::vector<float> turned(operands.weight.size());
  for (int64_t k = 0; k < 20; ++k) {
    for (int64_t c = 0; c < 7; ++c) {
      for (int64_t ij = 0; ij < 9; ++ij) turned[(ij * 7 + c) * 20 + k] = operands.weight[(k * 7 + c) * 9 + ij];
    }
  }
  const Packed packed(strided_view(turned.data(), DType::kFloat32, {20, 7, 3, 3}, {1, 20, 3 * 140, 140}), 4);
  EXPECT_EQ(packed.storage, Packed(weight_view(p, operands.weight), 4).storage);
}

TEST(WinogradConvolution, ThreadsDoNotChangeABit) {
  for_each_dispatch_target([&] {
    for (const Problem& p : {Problem{1, 40, 70, 9, 9}, Problem{2, 33, 20, 40, 41}}) {
      Operands operands(p);
      for (const int64_t tile : {2, 4}) {
        std::vector<float> expected;
        for (const int threads : {1, 2, 3, 7}) {
          set_num_threads(threads);
          const std::vector<float> output = convolve(p, operands, tile);
          if (expected.empty()) expected = output;
          EXPECT_EQ(std::memcmp(output.data(), expected.data(), output.size() * sizeof(float)), 0)
              << threads << " threads, tile " << tile;
        }
        set_num_threads(0);
      }
    }
  });
}

TEST(WinogradConvolution, ImagesOfABatchGiveTheirBitsAlone) {
  const Problem p{3, 17, 18, 10, 11};
  const Problem one{1, 17, 18, 10, 11};
  Operands operands(p);
  const std::vector<float> all = convolve(p, operands, 4);
  for (int64_t n = 0; n < 3; ++n) {
    Operands alone(one);
    const int64_t size = count(one.input_shape());
    std::copy_n(operands.input.begin() + n * size, size, alone.input.begin());
    const std::vector<float> output = convolve(one, alone, 4);
    EXPECT_EQ(std::memcmp(output.data(), all.data() + n * output.size(), output.size() * sizeof(float)), 0);
  }
}

TEST(WinogradConvolution, ErrorStaysBelowTheStatedPartOfTheMaximum) {
  const Problem p{1, 512, 16, 7, 7};
  Operands operands(p);
  for_each_dispatch_target([&] {
    for (const int64_t tile : {2, 4}) {
      expect_near_reference(p, operands, {}, convolve(p, operands, tile), Layout::kChannelsLast);
    }
  });
}

TEST(WinogradConvolution, SmallIntegersAreExactWithTilesOfTwo) {
  // All intermediate values of F(2, 3) are multiples of 1/4 below 2^24.
  const Problem p{1, 33, 17, 6, 7};
  Operands operands(p);
  for (float& value : operands.input) value = std::round(2 * value);
  for (float& value : operands.weight) value = std::round(2 * value);
  for_each_dispatch_target([&] {
    const std::vector<float> output = convolve(p, operands, 2, {}, Layout::kChannelsFirst);
    std::vector<double> expected(output.size());
    WinogradOptions options;
    options.padding = p.padding;
    winograd_reference(f32_view(operands.input, p.input_shape()), weight_view(p, operands.weight), options,
                       expected.data());
    for (size_t i = 0; i < output.size(); ++i) ASSERT_EQ(output[i], expected[i]) << i;
  });
}

TEST(WinogradConvolution, NaNAndInfinityReachTheTilesThatReadThem) {
  const Problem p{1, 16, 16, 16, 16};
  for_each_dispatch_target([&] {
    for (const float special : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const auto activation : {Activation::kNone, Activation::kRelu}) {
        Operands operands(p);
        operands.input[0] = special;  // the first pixel, read by the first tile alone
        WinogradOptions options;
        options.activation = activation;
        const std::vector<float> output = convolve(p, operands, 4, options);
        EXPECT_TRUE(std::isnan(output[0]));
        for (int64_t y = 0; y < 16; ++y) {
          for (int64_t x = 0; x < 16; ++x) {
            if (y < 4 && x < 4) continue;
            ASSERT_TRUE(std::isfinite(output[(y * 16 + x) * 16])) << y << ", " << x;
          }
        }
      }
    }
  });
}

TEST(WinogradConvolution, KeepsDenormals) {
  const Problem p{1, 1, 1, 4, 4};
  Operands operands(p);
  std::fill(operands.weight.begin(), operands.weight.end(), 0.0f);
  operands.weight[4] = 1.0f;
  for (float& value : operands.input) value = 0x1p-130f;
  for_each_dispatch_target([&] {
    for (const int64_t tile : {2, 4}) {
      // Each transform may round to the spacing of denormals, 2^-149, some dozens of times.
      for (const float value : convolve(p, operands, tile)) EXPECT_NEAR(value, 0x1p-130f, 0x1p-141f);
    }
  });
}

TEST(WinogradConvolution, EmptyDimensionsAreValid) {
  const Problem no_images{0, 3, 4, 5, 5};
  Operands operands(no_images);
  EXPECT_TRUE(convolve(no_images, operands, 4).empty());
  const Problem no_outputs{1, 3, 0, 5, 5};
  Operands none(no_outputs);
  EXPECT_TRUE(convolve(no_outputs, none, 4).empty());

  const Problem no_inputs{1, 0, 3, 5, 5};
  Operands nothing(no_inputs);
  const TensorView bias = f32_view(nothing.bias, {3});
  WinogradOptions options;
  options.bias = &bias;
  for (const Layout layout : {Layout::kChannelsLast, Layout::kChannelsFirst}) {
    const std::vector<float> output = convolve(no_inputs, nothing, 4, options, layout);
    for (size_t i = 0; i < output.size(); ++i) {
      EXPECT_EQ(output[i], nothing.bias[layout == Layout::kChannelsLast ? i % 3 : i / 25]);
    }
  }
}

TEST(WinogradRule, LeavesOutShapesWhoseTransformsCostTooMuch) {
  EXPECT_TRUE(prefers_winograd({1, 64, 64, 56, 56}));
  EXPECT_TRUE(prefers_winograd({1, 512, 512, 7, 7}));
  EXPECT_FALSE(prefers_winograd({1, 512, 512, 3, 3}));
  EXPECT_FALSE(prefers_winograd({1, 3, 64, 224, 224}));
  EXPECT_TRUE(prefers_winograd({1, 128, 3, 64, 64}));
  EXPECT_FALSE(prefers_winograd({1, 128, 3, 14, 14}));
}

TEST(WinogradRule, TakesSmallTilesWhereWeightsOutweighTheImage) {
  EXPECT_EQ(winograd_output_tile({1, 64, 64, 56, 56}), 4);
  EXPECT_EQ(winograd_output_tile({1, 256, 256, 14, 14}), 4);
  EXPECT_EQ(winograd_output_tile({1, 64, 64, 4, 4}), 2);
  EXPECT_EQ(winograd_output_tile({1, 512, 512, 7, 7}), 2);
  EXPECT_EQ(winograd_output_tile({8, 512, 512, 7, 7}), 4);
}

}  // namespace
}  // namespace qx::kernels
