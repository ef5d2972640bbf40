#include "quincunx/kernels/convolution/convolution.h"

#include <algorithm>
#include <optional>
#include <string>

#include "quincunx/kernels/convolution/channels_last.h"
#include "quincunx/kernels/convolution/convolution_problem.h"
#include "quincunx/kernels/convolution/geometry_checks.h"
#include "quincunx/kernels/convolution/lines.h"
#include "quincunx/kernels/convolution/pointwise.h"
#include "quincunx/kernels/convolution/winograd_route.h"
#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/gemm/workspace.h"

namespace qx::kernels {
namespace {

// Scale and bias as contiguous arrays, and tensors whose channels are apart as copies with adjacent channels.
class Staging {
 public:
  // Points `values` at the elements of `view`, if there is one.
  void stage_channels(const TensorView* view, const float*& values) {
    if (view == nullptr) return;
    const auto* source = view->data_as<const float>();
    values = source;
    if (view->stride(0) == 1) return;
    float* copy = allocate(view->size(0));
    for (int64_t i = 0; i < view->size(0); ++i) copy[i] = source[i * view->stride(0)];
    values = copy;
  }

  void stage_images(int64_t images, int64_t channels, const SpatialSizes& sizes, const float*& data,
                    ImageLayout& layout) {
    if (data == nullptr || has_adjacent_channels(layout, channels)) return;
    const ImageLayout dense = channels_last_layout(channels, sizes);
    float* copy = allocate(images * dense.image_stride);
    copy_images(images, channels, sizes, data, layout, copy, dense);
    data = copy;
    layout = dense;
  }

  // Copies the input, with a cache line between its pixels.
  void stage_pixels_apart(ConvolutionProblem& problem) {
    constexpr int64_t kGap = 16;
    const ImageLayout apart = channels_last_layout(problem.in_channels + kGap, problem.in);
    float* copy = allocate(problem.images * apart.image_stride);
    copy_images(problem.images, problem.in_channels, problem.in, problem.input, problem.input_layout, copy, apart);
    problem.input = copy;
    problem.input_layout = apart;
  }

  // Lets `problem` write to a copy with adjacent channels; unstage_output brings it where it belongs.
  void stage_output(ConvolutionProblem& problem) {
    stage_images(problem.images, problem.out_channels, problem.out, problem.epilogue.residual,
                 problem.epilogue.residual_layout);
    if (has_adjacent_channels(problem.output_layout, problem.out_channels)) return;
    output_ = problem.output;
    output_layout_ = problem.output_layout;
    problem.output_layout = channels_last_layout(problem.out_channels, problem.out);
    problem.output = allocate(problem.images * problem.output_layout.image_stride);
  }

  void unstage_output(const ConvolutionProblem& problem) const {
    if (output_ == nullptr) return;
    copy_images(problem.images, problem.out_channels, problem.out, problem.output, problem.output_layout, output_,
                output_layout_);
  }

 private:
  float* allocate(int64_t size) {
    for (std::optional<Workspace>& buffer : buffers_) {
      if (!buffer) return buffer.emplace(size).data();
    }
    return nullptr;
  }

  // Scale, bias, input, previous frames, residual, output.
  std::array<std::optional<Workspace>, 6> buffers_;
  float* output_ = nullptr;
  ImageLayout output_layout_;
};

SpatialSizes padding_after(const ConvolutionGeometry& geometry, int num_spatial_dims) {
  SpatialSizes padding = {0, 0, 0};
  const int missing = kMaxSpatialDims - num_spatial_dims;
  for (int i = 0; i < num_spatial_dims; ++i) padding[missing + i] = geometry.padding_after[i];
  return padding;
}

Status run(ConvolutionProblem& problem, const PackedConvolutionWeight& weight, const ConvolutionOptions& options) {
  Staging staging;
  staging.stage_channels(options.scale, problem.epilogue.scale);
  staging.stage_channels(options.bias, problem.epilogue.bias);
  if (weight.form == ConvolutionForm::kWinograd) {
    const bool finishes = !winograd_takes_epilogue(problem);
    if (finishes) staging.stage_output(problem);
    QX_RETURN_IF_ERROR(
        convolve_winograd(problem, weight.winograd_tile, padding_after(options.geometry, weight.num_spatial_dims)));
    if (finishes) {
      if (problem.epilogue.scale == nullptr) problem.epilogue.bias = nullptr;
      finish_output(problem);
      staging.unstage_output(problem);
    }
    return ok_status();
  }
  if (weight.form == ConvolutionForm::kPanels && prefers_pixels_apart(problem)) staging.stage_pixels_apart(problem);
  staging.stage_images(problem.images, problem.in_channels, problem.in, problem.input, problem.input_layout);
  staging.stage_images(problem.images, problem.in_channels, {problem.num_previous, problem.in[1], problem.in[2]},
                       problem.previous, problem.previous_layout);
  if (is_pointwise(problem)) {
    staging.stage_output(problem);
    convolve_pointwise(problem);
    staging.unstage_output(problem);
  } else if (is_line_convolution(problem)) {
    convolve_lines(problem);
  } else if (weight.form == ConvolutionForm::kDepthwise) {
    staging.stage_output(problem);
    convolve_depthwise(problem);
    staging.unstage_output(problem);
  } else {
    convolve_panels(problem);
  }
  return ok_status();
}

Status check_weight_apart(const PackedConvolutionWeight& weight, const TensorView& output) {
  // The least that a packed weight takes: what lies behind it is not known here.
  const int64_t size = weight.out_channels * (weight.in_channels / weight.groups);
  QX_ASSIGN_OR_RETURN(const TensorView packed,
                      TensorView::contiguous(const_cast<float*>(weight.data), DType::kFloat32, std::span(&size, 1)));
  return check_output_apart("weight", packed, output);
}

Status check_winograd(const PackedConvolutionWeight& weight, const ConvolutionGeometry& geometry) {
  if (weight.form != ConvolutionForm::kWinograd) return ok_status();
  for (int i = weight.num_spatial_dims - 2; i < weight.num_spatial_dims; ++i) {
    if (geometry.stride[i] != 1 || geometry.dilation[i] != 1) {
      return invalid_argument("stride and dilation: expected 1, for which the weight was packed, got " +
                              std::to_string(geometry.stride[i]) + " and " + std::to_string(geometry.dilation[i]));
    }
  }
  return ok_status();
}

}  // namespace

Result<ConvolutionActivation> convolution_activation_from_name(std::string_view name) {
  using A = ConvolutionActivation;
  constexpr std::pair<std::string_view, A> kNames[] = {
      {"none", A::kNone}, {"relu", A::kRelu},           {"gelu_tanh", A::kGeluTanh}, {"gelu_erf", A::kGeluErf},
      {"silu", A::kSilu}, {"hardswish", A::kHardswish}, {"clamp", A::kClamp}};
  for (const auto& [known, activation] : kNames) {
    if (name == known) return activation;
  }
  return invalid_argument(
      "activation: expected \"none\", \"relu\", \"gelu_tanh\", \"gelu_erf\", \"silu\", \"hardswish\" or \"clamp\", "
      "got \"" +
      std::string(name) + "\"");
}

Status convolution(const TensorView& input, const PackedConvolutionWeight& weight, const TensorView& output,
                   const ConvolutionOptions& options) {
  QX_ASSIGN_OR_RETURN(ConvolutionProblem problem, checked_problem(input, weight, output, options));
  QX_RETURN_IF_ERROR(check_weight_apart(weight, output));
  QX_RETURN_IF_ERROR(check_winograd(weight, options.geometry));
  if (output.num_elements() == 0) return ok_status();
  return run(problem, weight, options);
}

Status convolution(const TensorView& input, const TensorView& weight, const TensorView& output,
                   const ConvolutionOptions& options) {
  const ConvolutionPacking exact{.exact = true};
  QX_ASSIGN_OR_RETURN(const int64_t size, packed_convolution_weight_size(weight, options.geometry, exact));
  QX_RETURN_IF_ERROR(check_f32_operand("output", output));
  QX_RETURN_IF_ERROR(check_output_apart("weight", weight, output));
  const Workspace storage(size);
  const std::span<float> packed(storage.data(), static_cast<size_t>(size));
  QX_ASSIGN_OR_RETURN(const PackedConvolutionWeight view,
                      pack_convolution_weight(weight, options.geometry, packed, exact));
  return convolution(input, view, output, options);
}

Status next_frames(const TensorView* previous_frames, const TensorView& input, const TensorView& next) {
  const auto fits = [&](const TensorView& frames) {
    return frames.num_dims() == 5 && frames.size(0) == input.size(0) && frames.size(1) == input.size(1) &&
           frames.size(3) == input.size(3) && frames.size(4) == input.size(4);
  };
  if (input.num_dims() != 5 || !fits(next)) {
    return invalid_argument("next: expected [batch, channels, frames, height, width] as input " + input.to_string() +
                            ", got " + next.to_string());
  }
  if (previous_frames != nullptr && !fits(*previous_frames)) {
    return invalid_argument("previous_frames: expected [batch, channels, frames, height, width] as input " +
                            input.to_string() + ", got " + previous_frames->to_string());
  }
  QX_RETURN_IF_ERROR(check_f32_operand("input", input));
  QX_RETURN_IF_ERROR(check_f32_operand("next", next));
  QX_RETURN_IF_ERROR(check_output_writable(next));
  QX_RETURN_IF_ERROR(check_output_apart("input", input, next));
  if (previous_frames != nullptr) {
    QX_RETURN_IF_ERROR(check_f32_operand("previous_frames", *previous_frames));
    QX_RETURN_IF_ERROR(check_output_apart("previous_frames", *previous_frames, next));
  }
  copy_last_frames(previous_frames, input, next);
  return ok_status();
}

}  // namespace qx::kernels
