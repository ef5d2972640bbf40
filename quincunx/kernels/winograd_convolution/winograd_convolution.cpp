#include "quincunx/kernels/winograd_convolution/winograd_convolution.h"

#include <string>

#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/kernels/winograd_convolution/winograd_blocks.h"
#include "quincunx/kernels/winograd_convolution/winograd_layout.h"

namespace qx::kernels {
namespace {

Status check_image(std::string_view name, const TensorView& view, int64_t channels) {
  if (view.num_dims() != 4) {
    return invalid_argument(std::string(name) + ": expected [batch, channels, height, width], got " + view.to_string());
  }
  if (view.size(1) != channels) {
    return invalid_argument(std::string(name) + ": expected " + std::to_string(channels) +
                            " channels, as many as the weight has, got " + view.to_string());
  }
  return check_f32_operand(name, view);
}

// Outputs along one dimension.
Result<int64_t> output_size(const char* dimension, int64_t size, int64_t before, int64_t after) {
  if (before < 0 || after < 0) {
    return invalid_argument("padding: expected no negative number, got " + std::to_string(before) + " and " +
                            std::to_string(after) + " for the " + dimension);
  }
  int64_t padded = 0;
  if (__builtin_add_overflow(size, before, &padded) || __builtin_add_overflow(padded, after, &padded)) {
    return invalid_argument("padding: the padded " + std::string(dimension) + " overflows 64 bits");
  }
  if (padded < 3) {
    return invalid_argument("input: expected a padded " + std::string(dimension) + " of at least 3, got " +
                            std::to_string(padded));
  }
  return padded - 2;
}

Status check_output(const TensorView& input, const WinogradWeight& weight, const TensorView& output,
                    const WinogradPadding& padding) {
  QX_RETURN_IF_ERROR(check_image("output", output, weight.out_channels));
  QX_ASSIGN_OR_RETURN(const int64_t height, output_size("height", input.size(2), padding.top, padding.bottom));
  QX_ASSIGN_OR_RETURN(const int64_t width, output_size("width", input.size(3), padding.left, padding.right));
  if (output.size(0) != input.size(0) || output.size(2) != height || output.size(3) != width) {
    return invalid_argument("output: expected [" + std::to_string(input.size(0)) + ", " +
                            std::to_string(weight.out_channels) + ", " + std::to_string(height) + ", " +
                            std::to_string(width) + "], got " + output.to_string());
  }
  QX_RETURN_IF_ERROR(check_output_writable(output));
  return check_output_apart("input", input, output);
}

Status check_weight(const WinogradWeight& weight, const TensorView& output) {
  QX_ASSIGN_OR_RETURN(const int64_t size,
                      winograd_weight_size(weight.output_tile, weight.in_channels, weight.out_channels));
  if (weight.data == nullptr && size != 0) {
    return invalid_argument("weight: null data for " + std::to_string(size) + " transformed weights");
  }
  QX_ASSIGN_OR_RETURN(const TensorView view,
                      TensorView::contiguous(const_cast<float*>(weight.data), DType::kFloat32, std::span(&size, 1)));
  return check_output_apart("weight", view, output);
}

Status check_options(const WinogradOptions& options, const TensorView& output) {
  if (options.activation > Activation::kSilu) {
    return invalid_argument("activation: expected a value of the enumeration, got " +
                            std::to_string(static_cast<int>(options.activation)));
  }
  if (options.bias != nullptr) {
    if (options.bias->num_dims() != 1 || options.bias->size(0) != output.size(1)) {
      return invalid_argument("bias: expected [" + std::to_string(output.size(1)) + "], got " +
                              options.bias->to_string());
    }
    QX_RETURN_IF_ERROR(check_f32_operand("bias", *options.bias));
    QX_RETURN_IF_ERROR(check_output_apart("bias", *options.bias, output));
  }
  if (options.residual != nullptr) {
    QX_RETURN_IF_ERROR(check_image("residual", *options.residual, output.size(1)));
    for (const int dim : {0, 2, 3}) {
      if (options.residual->size(dim) != output.size(dim)) {
        return invalid_argument("residual: expected the shape of output, " + output.to_string() + ", got " +
                                options.residual->to_string());
      }
    }
    QX_RETURN_IF_ERROR(check_output_apart("residual", *options.residual, output));
  }
  return ok_status();
}

// Floats of an operand's copy with adjacent channels.
int64_t copy_size(const TensorView& view) { return has_adjacent_channels(view) ? 0 : view.num_elements(); }

// Where the kernel reads or writes an operand: in place, or in a copy at `free`, which moves on.
struct Pixels {
  float* data;
  PixelStrides strides;

  Pixels(const TensorView& view, float*& free) {
    if (has_adjacent_channels(view)) {
      data = view.data_as<float>();
      strides = pixel_strides_of(view);
    } else {
      data = free;
      strides = contiguous_pixel_strides(view);
      free += view.num_elements();
    }
  }
};

void convolve_staged(const TensorView& input, const WinogradWeight& weight, const TensorView& output,
                     const WinogradOptions& options) {
  const bool has_residual = options.residual != nullptr;
  const Workspace staging(copy_size(input) + copy_size(output) + (has_residual ? copy_size(*options.residual) : 0) +
                          (options.bias != nullptr ? output.size(1) : 0));
  float* free = staging.data();
  const Pixels source(input, free);
  const Pixels target(output, free);
  if (!has_adjacent_channels(input)) gather_pixels(input, source.data);

  WinogradProblem problem;
  problem.output_tile = weight.output_tile;
  problem.batch = input.size(0);
  problem.input = source.data;
  problem.input_strides = source.strides;
  problem.in_channels = input.size(1);
  problem.height = input.size(2);
  problem.width = input.size(3);
  problem.padding_top = options.padding.top;
  problem.padding_left = options.padding.left;
  problem.weight = weight.data;
  problem.output = target.data;
  problem.output_strides = target.strides;
  problem.out_channels = output.size(1);
  problem.output_height = output.size(2);
  problem.output_width = output.size(3);
  problem.activation = options.activation;
  if (has_residual) {
    const Pixels residual(*options.residual, free);
    if (!has_adjacent_channels(*options.residual)) gather_pixels(*options.residual, residual.data);
    problem.residual = residual.data;
    problem.residual_strides = residual.strides;
    problem.residual_before_activation = options.residual_before_activation;
  }
  if (options.bias != nullptr) {
    const auto* bias = options.bias->data_as<const float>();
    for (int64_t k = 0; k < output.size(1); ++k) free[k] = bias[k * options.bias->stride(0)];
    problem.bias = free;
  }
  winograd_convolve(problem);
  if (!has_adjacent_channels(output)) scatter_pixels(target.data, output);
}

}  // namespace

Status winograd_convolution(const TensorView& input, const WinogradWeight& weight, const TensorView& output,
                            const WinogradOptions& options) {
  QX_RETURN_IF_ERROR(check_image("input", input, weight.in_channels));
  QX_RETURN_IF_ERROR(check_output(input, weight, output, options.padding));
  QX_RETURN_IF_ERROR(check_weight(weight, output));
  QX_RETURN_IF_ERROR(check_options(options, output));
  if (output.num_elements() > 0) convolve_staged(input, weight, output, options);
  return ok_status();
}

}  // namespace qx::kernels
