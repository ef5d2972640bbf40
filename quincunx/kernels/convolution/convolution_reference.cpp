#include "quincunx/kernels/convolution/convolution_reference.h"

#include <algorithm>
#include <cmath>

namespace qx::kernels {
namespace {

double activated(const ConvolutionEpilogue& epilogue, double x) {
  switch (epilogue.activation) {
    case ConvolutionActivation::kNone: return x;
    case ConvolutionActivation::kRelu: return x < 0 ? 0 : x;
    case ConvolutionActivation::kGeluTanh: {
      const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1 + std::tanh(u));
    }
    case ConvolutionActivation::kGeluErf: return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
    case ConvolutionActivation::kSilu: return x / (1 + std::exp(-x));
    case ConvolutionActivation::kHardswish: return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case ConvolutionActivation::kClamp: return std::clamp<double>(x, epilogue.clamp_low, epilogue.clamp_high);
  }
  return x;
}

int64_t offset_of(const ImageLayout& layout, int64_t image, int64_t channel, const SpatialSizes& at) {
  return image * layout.image_stride + channel * layout.channel_stride + at[0] * layout.strides[0] +
         at[1] * layout.strides[1] + at[2] * layout.strides[2];
}

SpatialSizes unravel(int64_t index, const SpatialSizes& sizes) {
  return {index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]};
}

// The input index that tap `tap` of output index `out` meets; false where there is none.
bool input_index(const ConvolutionProblem& problem, const SpatialSizes& out, const SpatialSizes& tap,
                 SpatialSizes& in) {
  for (size_t i = 0; i < kMaxSpatialDims; ++i) {
    if (problem.transposed) {
      const int64_t distance = out[i] + problem.padding[i] - tap[i] * problem.dilation[i];
      if (distance % problem.stride[i] != 0) return false;
      in[i] = distance / problem.stride[i];
    } else {
      in[i] = out[i] * problem.stride[i] - problem.padding[i] + tap[i] * problem.dilation[i];
    }
    const int64_t least = i == 0 ? -problem.num_previous : 0;
    if (in[i] < least || in[i] >= problem.in[i]) return false;
  }
  return true;
}

double input_value(const ConvolutionProblem& problem, int64_t image, int64_t channel, SpatialSizes at) {
  if (at[0] >= 0) return problem.input[offset_of(problem.input_layout, image, channel, at)];
  at[0] += problem.num_previous;
  return problem.previous[offset_of(problem.previous_layout, image, channel, at)];
}

double sum_at(const ConvolutionProblem& problem, const float* weight, int64_t image, int64_t channel,
              const SpatialSizes& out) {
  const int64_t in_per_group = problem.in_per_group();
  const int64_t group = channel / problem.out_per_group();
  double sum = 0;
  for (int64_t t = 0; t < problem.num_taps(); ++t) {
    SpatialSizes in{};
    if (!input_index(problem, out, unravel(t, problem.kernel), in)) continue;
    for (int64_t c = 0; c < in_per_group; ++c) {
      const int64_t source = group * in_per_group + c;
      const int64_t row = problem.transposed ? source * problem.out_per_group() + channel % problem.out_per_group()
                                             : channel * in_per_group + c;
      sum += static_cast<double>(weight[row * problem.num_taps() + t]) * input_value(problem, image, source, in);
    }
  }
  return sum;
}

}  // namespace

void convolution_reference(const ConvolutionProblem& problem, const float* weight, double* output) {
  const ConvolutionEpilogue& epilogue = problem.epilogue;
  for (int64_t image = 0; image < problem.images; ++image) {
    for (int64_t channel = 0; channel < problem.out_channels; ++channel) {
      for (int64_t pixel = 0; pixel < problem.out_pixels(); ++pixel) {
        const SpatialSizes at = unravel(pixel, problem.out);
        double x = sum_at(problem, weight, image, channel, at);
        if (epilogue.scale != nullptr) x *= epilogue.scale[channel];
        if (epilogue.bias != nullptr) x += epilogue.bias[channel];
        const double residual = epilogue.residual == nullptr
                                    ? 0
                                    : epilogue.residual[offset_of(epilogue.residual_layout, image, channel, at)];
        x = epilogue.residual_before_activation ? activated(epilogue, x + residual) : activated(epilogue, x) + residual;
        *output++ = x;
      }
    }
  }
}

}  // namespace qx::kernels
