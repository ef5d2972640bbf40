#include "quincunx/kernels/convolution/geometry_checks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "quincunx/kernels/convolution/channels_last.h"
#include "quincunx/kernels/gemm/operands.h"

namespace qx::kernels {
namespace {

// With parameters and sizes below, sums and products of three of them fit 64 bits.
constexpr int64_t kLargestParameter = int64_t{1} << 20;
constexpr int64_t kLargestSize = int64_t{1} << 40;

Status expect_between(std::string_view name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return ok_status();
  return invalid_argument(std::string(name) + ": expected " + std::to_string(least) + " to " + std::to_string(most) +
                          ", got " + std::to_string(value));
}

Status check_geometry(const ConvolutionGeometry& geometry, int num_dims) {
  if (geometry.groups < 1) {
    return invalid_argument("groups: expected at least 1, got " + std::to_string(geometry.groups));
  }
  for (int i = 0; i < num_dims; ++i) {
    QX_RETURN_IF_ERROR(expect_between("stride", geometry.stride[i], 1, kLargestParameter));
    QX_RETURN_IF_ERROR(expect_between("dilation", geometry.dilation[i], 1, kLargestParameter));
    QX_RETURN_IF_ERROR(expect_between("padding_before", geometry.padding_before[i], 0, kLargestParameter));
    QX_RETURN_IF_ERROR(expect_between("padding_after", geometry.padding_after[i], 0, kLargestParameter));
    const int64_t most = geometry.transposed ? std::max(geometry.stride[i], geometry.dilation[i]) - 1 : 0;
    QX_RETURN_IF_ERROR(expect_between("output_padding", geometry.output_padding[i], 0, most));
  }
  return ok_status();
}

Status check_channels(std::string_view name, const TensorView* view, int64_t channels, const TensorView& output) {
  if (view == nullptr) return ok_status();
  if (view->num_dims() != 1 || view->size(0) != channels) {
    return invalid_argument(std::string(name) + ": expected [" + std::to_string(channels) + "], got " +
                            view->to_string());
  }
  QX_RETURN_IF_ERROR(check_f32_operand(name, *view));
  return check_output_apart(name, *view, output);
}

Status check_epilogue(const ConvolutionOptions& options, const TensorView& output) {
  if (options.activation > ConvolutionActivation::kClamp) {
    return invalid_argument("activation: expected a value of the enumeration, got " +
                            std::to_string(static_cast<int>(options.activation)));
  }
  if (options.activation == ConvolutionActivation::kClamp && !(options.clamp_low <= options.clamp_high)) {
    return invalid_argument("clamp_low: expected at most clamp_high, " + std::to_string(options.clamp_high) + ", got " +
                            std::to_string(options.clamp_low));
  }
  QX_RETURN_IF_ERROR(check_channels("scale", options.scale, output.size(1), output));
  QX_RETURN_IF_ERROR(check_channels("bias", options.bias, output.size(1), output));
  if (options.residual == nullptr) return ok_status();
  if (!std::ranges::equal(options.residual->shape(), output.shape())) {
    return invalid_argument("residual: expected the shape of output, " + output.to_string() + ", got " +
                            options.residual->to_string());
  }
  QX_RETURN_IF_ERROR(check_f32_operand("residual", *options.residual));
  return check_output_apart("residual", *options.residual, output);
}

Status check_previous(const ConvolutionOptions& options, const TensorView& input, const TensorView& output) {
  if (options.previous_frames == nullptr) return ok_status();
  const TensorView& previous = *options.previous_frames;
  if (input.num_dims() != 5 || options.geometry.transposed) {
    return invalid_argument("previous_frames: expected a convolution of three dimensions that is not transposed");
  }
  const bool fits = previous.num_dims() == 5 && previous.size(0) == input.size(0) &&
                    previous.size(1) == input.size(1) && previous.size(3) == input.size(3) &&
                    previous.size(4) == input.size(4) && previous.size(2) <= options.geometry.padding_before[0];
  if (!fits) {
    return invalid_argument(
        "previous_frames: expected at most padding_before[0] = " + std::to_string(options.geometry.padding_before[0]) +
        " frames like those of input " + input.to_string() + ", got " + previous.to_string());
  }
  QX_RETURN_IF_ERROR(check_f32_operand("previous_frames", previous));
  return check_output_apart("previous_frames", previous, output);
}

Status check_images(const TensorView& input, const PackedConvolutionWeight& weight, const TensorView& output,
                    const ConvolutionGeometry& geometry) {
  if (input.num_dims() != weight.num_spatial_dims + 2) {
    return invalid_argument("input: expected " + std::to_string(weight.num_spatial_dims + 2) +
                            " dimensions, batch, channels and those of the weight, got " + input.to_string());
  }
  QX_RETURN_IF_ERROR(check_f32_operand("input", input));
  QX_RETURN_IF_ERROR(check_f32_operand("output", output));
  if (input.size(1) != weight.in_channels) {
    return invalid_argument("input: expected " + std::to_string(weight.in_channels) + " channels, got " +
                            input.to_string());
  }
  if (geometry.groups != weight.groups || geometry.transposed != weight.transposed) {
    return invalid_argument("groups and transposed: expected those that the weight was packed with, " +
                            std::to_string(weight.groups) + " and " + std::to_string(weight.transposed) + ", got " +
                            std::to_string(geometry.groups) + " and " + std::to_string(geometry.transposed));
  }
  const std::span kernel(weight.kernel.data(), static_cast<size_t>(weight.num_spatial_dims));
  QX_ASSIGN_OR_RETURN(const SpatialSizes sizes, convolution_output_sizes(input.shape().subspan(2), kernel, geometry));
  bool fits =
      output.num_dims() == input.num_dims() && output.size(0) == input.size(0) && output.size(1) == weight.out_channels;
  for (int i = 0; fits && i < weight.num_spatial_dims; ++i) fits = output.size(i + 2) == sizes[i];
  if (!fits) {
    std::string expected = std::to_string(input.size(0)) + ", " + std::to_string(weight.out_channels);
    for (int i = 0; i < weight.num_spatial_dims; ++i) expected += ", " + std::to_string(sizes[i]);
    return invalid_argument("output: expected [" + expected + "], got " + output.to_string());
  }
  QX_RETURN_IF_ERROR(check_output_writable(output));
  return check_output_apart("input", input, output);
}

}  // namespace

Status check_weight_shape(const TensorView& weight, const ConvolutionGeometry& geometry) {
  if (weight.num_dims() < 3 || weight.num_dims() > kMaxSpatialDims + 2) {
    return invalid_argument(
        "weight: expected output channels, input channels and one to three sizes of a window, got " +
        weight.to_string());
  }
  for (int i = 0; i < weight.num_dims(); ++i) {
    if (weight.size(i) < 1 || weight.size(i) >= (int64_t{1} << 31)) {
      return invalid_argument("weight: expected sizes of at least one and below 2^31, got " + weight.to_string());
    }
  }
  QX_RETURN_IF_ERROR(check_geometry(geometry, weight.num_dims() - 2));
  if (weight.size(0) % geometry.groups != 0) {
    return invalid_argument("groups: expected a divisor of the weight's first size, " + std::to_string(weight.size(0)) +
                            ", got " + std::to_string(geometry.groups));
  }
  return ok_status();
}

Result<SpatialSizes> convolution_output_sizes(std::span<const int64_t> input_sizes, std::span<const int64_t> kernel,
                                              const ConvolutionGeometry& geometry) {
  if (input_sizes.size() != kernel.size() || kernel.empty() || kernel.size() > kMaxSpatialDims) {
    return invalid_argument("input_sizes: expected one to three sizes, as many as the kernel has, got " +
                            std::to_string(input_sizes.size()) + " and " + std::to_string(kernel.size()));
  }
  QX_RETURN_IF_ERROR(check_geometry(geometry, static_cast<int>(kernel.size())));
  SpatialSizes sizes = {1, 1, 1};
  for (size_t i = 0; i < kernel.size(); ++i) {
    QX_RETURN_IF_ERROR(expect_between("input_sizes", input_sizes[i], 0, kLargestSize));
    QX_RETURN_IF_ERROR(expect_between("kernel", kernel[i], 1, kLargestParameter));
    const int64_t padding = geometry.padding_before[i] + geometry.padding_after[i];
    const int64_t reach = geometry.dilation[i] * (kernel[i] - 1) + 1;
    if (geometry.transposed) {
      sizes[i] = (input_sizes[i] - 1) * geometry.stride[i] - padding + reach + geometry.output_padding[i];
    } else {
      const int64_t span = input_sizes[i] + padding - reach;
      sizes[i] = span < 0 ? 0 : span / geometry.stride[i] + 1;
    }
    if (sizes[i] < 1 || input_sizes[i] == 0) {
      return invalid_argument("input: size " + std::to_string(input_sizes[i]) + " of spatial dimension " +
                              std::to_string(i) + " is too small for a window of " + std::to_string(reach) +
                              " with padding " + std::to_string(padding));
    }
  }
  return sizes;
}

Result<ConvolutionProblem> checked_problem(const TensorView& input, const PackedConvolutionWeight& weight,
                                           const TensorView& output, const ConvolutionOptions& options) {
  if (weight.data == nullptr) return invalid_argument("weight: null data for a packed weight");
  const ConvolutionGeometry& geometry = options.geometry;
  QX_RETURN_IF_ERROR(check_images(input, weight, output, geometry));
  QX_RETURN_IF_ERROR(check_epilogue(options, output));
  QX_RETURN_IF_ERROR(check_previous(options, input, output));
  ConvolutionProblem problem;
  problem.images = input.size(0);
  problem.groups = weight.groups;
  problem.in_channels = weight.in_channels;
  problem.out_channels = weight.out_channels;
  problem.transposed = weight.transposed;
  const int missing = kMaxSpatialDims - weight.num_spatial_dims;
  for (int i = 0; i < weight.num_spatial_dims; ++i) {
    problem.in[missing + i] = input.size(i + 2);
    problem.out[missing + i] = output.size(i + 2);
    problem.kernel[missing + i] = weight.kernel[i];
    problem.stride[missing + i] = geometry.stride[i];
    problem.dilation[missing + i] = geometry.dilation[i];
    problem.padding[missing + i] = geometry.padding_before[i];
  }
  problem.weight = weight.data;
  problem.input = input.data_as<const float>();
  problem.input_layout = layout_of(input);
  problem.output = output.data_as<float>();
  problem.output_layout = layout_of(output);
  ConvolutionEpilogue& epilogue = problem.epilogue;
  epilogue.activation = options.activation;
  epilogue.clamp_low = options.clamp_low;
  epilogue.clamp_high = options.clamp_high;
  epilogue.residual_before_activation = options.residual_before_activation;
  if (options.residual != nullptr) {
    epilogue.residual = options.residual->data_as<const float>();
    epilogue.residual_layout = layout_of(*options.residual);
  }
  if (options.previous_frames != nullptr && options.previous_frames->size(2) > 0) {
    problem.previous = options.previous_frames->data_as<const float>();
    problem.num_previous = options.previous_frames->size(2);
    problem.previous_layout = layout_of(*options.previous_frames);
  }
  return problem;
}

}  // namespace qx::kernels
