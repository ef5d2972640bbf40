// Convolutions with random numbers, and what they must give.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "kernels/random_values.h"
#include "quincunx/kernels/convolution/channels_last.h"
#include "quincunx/kernels/convolution/convolution.h"
#include "quincunx/kernels/convolution/convolution_reference.h"
#include "quincunx/kernels/convolution/geometry_checks.h"

namespace qx::kernels {

struct ConvolutionCase {
  std::vector<int64_t> input;  // batch, channels, spatial ...
  int64_t out_channels = 1;
  std::vector<int64_t> kernel;  // spatial
  ConvolutionGeometry geometry = {};
  bool channels_last = false;
  bool exact = true;
};

// Strides of the shape, row-major or with adjacent channels.
inline std::vector<int64_t> strides_of(const std::vector<int64_t>& shape, bool channels_last) {
  std::vector<int64_t> strides(shape.size(), 1);
  int64_t step = channels_last ? shape[1] : 1;
  for (size_t i = shape.size(); i-- > (channels_last ? 2u : 0u);) {
    strides[i] = step;
    step *= shape[i];
  }
  if (channels_last) strides[0] = step;
  return strides;
}

inline int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// The tensors of a case.
class RandomConvolution {
 public:
  explicit RandomConvolution(const ConvolutionCase& c) : case_(c) {
    const bool transposed = c.geometry.transposed;
    const int64_t in = c.input[1];
    weight_shape_ = {transposed ? in : c.out_channels, (transposed ? c.out_channels : in) / c.geometry.groups};
    weight_shape_.insert(weight_shape_.end(), c.kernel.begin(), c.kernel.end());
    const auto sizes = convolution_output_sizes(std::span(c.input).subspan(2), c.kernel, c.geometry).value();
    output_shape_ = {c.input[0], c.out_channels};
    output_shape_.insert(output_shape_.end(), sizes.begin(),
                         sizes.begin() + static_cast<std::ptrdiff_t>(c.kernel.size()));
    input_ = normal_values(count_of(c.input), 1);
    weight_ = normal_values(count_of(weight_shape_), 2);
    output_.assign(static_cast<size_t>(count_of(output_shape_)), 7.0f);
    channel_values_ = normal_values(c.out_channels, 3);
    residual_ = normal_values(count_of(output_shape_), 4);
    options.geometry = c.geometry;
  }

  TensorView input() { return view(input_, case_.input); }
  TensorView output() { return view(output_, output_shape_); }
  TensorView residual() { return view(residual_, output_shape_); }
  TensorView weight() { return f32_view(weight_, weight_shape_); }
  TensorView channel_values() { return f32_view(channel_values_, {case_.out_channels}); }
  std::vector<float>& input_values() { return input_; }
  const std::vector<float>& output_values() const { return output_; }

  PackedConvolutionWeight pack() {
    const ConvolutionPacking packing{.exact = case_.exact, .typical_output = {0, 0, 0}};
    storage_.resize(static_cast<size_t>(packed_convolution_weight_size(weight(), case_.geometry, packing).value()));
    return pack_convolution_weight(weight(), case_.geometry, storage_, packing).value();
  }
  std::vector<float>& storage() { return storage_; }

  // Runs with the packed weight and compares with the reference. A sum of n products in any order is within n * 2^-24
  // of the sum of magnitudes; Winograd's bound is that of its header.
  void expect_equals_reference() {
    const PackedConvolutionWeight packed = pack();
    ASSERT_EQ(convolution(input(), packed, output(), options).message(), "");
    ConvolutionProblem problem = checked_problem(input(), packed, output(), options).value();
    std::vector<float> scale = normal_values(case_.out_channels, 3);
    if (options.scale != nullptr) problem.epilogue.scale = scale.data();
    if (options.bias != nullptr) problem.epilogue.bias = scale.data();
    std::vector<double> expected(output_.size());
    convolution_reference(problem, weight_.data(), expected.data());
    const std::vector<double> bounds = magnitudes(problem);
    const double terms = static_cast<double>(problem.in_per_group() * problem.num_taps()) + 4;
    const bool is_winograd = packed.form == ConvolutionForm::kWinograd;
    const double factor = is_winograd ? 2e-5 : terms * 0x1p-24;
    const double largest = *std::max_element(bounds.begin(), bounds.end());
    size_t i = 0;
    for (int64_t n = 0; n < problem.images * problem.out_channels; ++n) {
      for (int64_t p = 0; p < problem.out_pixels(); ++p, ++i) {
        // The activations' slopes are below 1.13, their own error below 2^-21 of argument and result.
        const double bound = 1.2 * factor * (is_winograd ? largest : bounds[i]) + 0x1p-21 * (4 + std::abs(expected[i]));
        ASSERT_NEAR(at(problem, n / problem.out_channels, n % problem.out_channels, p), expected[i], bound)
            << "image and channel " << n << ", pixel " << p;
      }
    }
  }

  ConvolutionOptions options;

 private:
  TensorView view(std::vector<float>& values, const std::vector<int64_t>& shape) const {
    return strided_view(values.data(), DType::kFloat32, shape, strides_of(shape, case_.channels_last));
  }

  double at(const ConvolutionProblem& problem, int64_t image, int64_t channel, int64_t pixel) const {
    const ImageLayout& layout = problem.output_layout;
    const int64_t x = pixel % problem.out[2];
    const int64_t y = pixel / problem.out[2] % problem.out[1];
    const int64_t z = pixel / (problem.out[2] * problem.out[1]);
    return output_[static_cast<size_t>(image * layout.image_stride + channel * layout.channel_stride +
                                       z * layout.strides[0] + y * layout.strides[1] + x * layout.strides[2])];
  }

  // The same with all operands' magnitudes, without activation.
  std::vector<double> magnitudes(ConvolutionProblem problem) const {
    const auto absolute = [](std::vector<float> values) {
      for (float& value : values) value = std::abs(value);
      return values;
    };
    const std::vector<float> input = absolute(input_), weight = absolute(weight_), residual = absolute(residual_);
    const std::vector<float> channels = absolute(normal_values(case_.out_channels, 3));
    problem.input = input.data();
    problem.epilogue.activation = ConvolutionActivation::kNone;
    if (problem.epilogue.scale != nullptr) problem.epilogue.scale = channels.data();
    if (problem.epilogue.bias != nullptr) problem.epilogue.bias = channels.data();
    if (problem.epilogue.residual != nullptr) problem.epilogue.residual = residual.data();
    std::vector<double> sums(output_.size());
    convolution_reference(problem, weight.data(), sums.data());
    return sums;
  }

  ConvolutionCase case_;
  std::vector<int64_t> weight_shape_, output_shape_;
  std::vector<float> input_, weight_, output_, channel_values_, residual_, storage_;
};

// Every case in both memory orders on every instruction set.
inline void expect_all(const std::vector<ConvolutionCase>& cases) {
  for_each_dispatch_target([&] {
    for (size_t i = 0; i < cases.size(); ++i) {
      for (const bool channels_last : {false, true}) {
        SCOPED_TRACE("case " + std::to_string(i) + (channels_last ? ", channels last" : ""));
        ConvolutionCase c = cases[i];
        c.channels_last = channels_last;
        RandomConvolution(c).expect_equals_reference();
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

inline ConvolutionGeometry geometry(SpatialSizes stride, SpatialSizes before, SpatialSizes after,
                                    SpatialSizes dilation = {1, 1, 1}, int64_t groups = 1) {
  return {.stride = stride,
          .dilation = dilation,
          .padding_before = before,
          .padding_after = after,
          .output_padding = {0, 0, 0},
          .groups = groups,
          .transposed = false};
}

}  // namespace qx::kernels
