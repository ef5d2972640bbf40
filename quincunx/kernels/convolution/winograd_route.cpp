#include "quincunx/kernels/convolution/winograd_route.h"

#include <algorithm>
#include <cstring>

#include "quincunx/kernels/convolution/channels_last.h"
#include "quincunx/kernels/convolution/pointwise.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/kernels/winograd_convolution/winograd_convolution.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Frame `frame` of `images` images as [images, channels, height, width].
Result<TensorView> plane_view(const float* data, const ImageLayout& layout, int64_t images, int64_t channels,
                              const SpatialSizes& sizes, int64_t frame) {
  const std::array<int64_t, 4> shape{images, channels, sizes[1], sizes[2]};
  const std::array<int64_t, 4> strides{layout.image_stride, layout.channel_stride, layout.strides[1],
                                       layout.strides[2]};
  return TensorView::strided(const_cast<float*>(data) + frame * layout.strides[0], DType::kFloat32, shape, strides);
}

// The frames under the window of output frame `frame`, one after another in the channels of [height, width, kernel *
// channels].
void gather_frames(const ConvolutionProblem& problem, int64_t image, int64_t frame, float* planes) {
  const int64_t channels = problem.in_channels;
  const int64_t width = channels * problem.kernel[0];
  const SpatialSizes plane = {1, problem.in[1], problem.in[2]};
  for (int64_t k = 0; k < problem.kernel[0]; ++k) {
    const int64_t z = frame * problem.stride[0] - problem.padding[0] + k * problem.dilation[0];
    ImageLayout layout = channels_last_layout(width, plane);
    float* target = planes + k * channels;
    if (z >= problem.in[0] || z < -problem.num_previous) {
      for (int64_t i = 0; i < plane[1] * plane[2]; ++i) std::fill_n(target + i * width, channels, 0.0f);
      continue;
    }
    const bool is_previous = z < 0;
    const ImageLayout& from = is_previous ? problem.previous_layout : problem.input_layout;
    const float* source = (is_previous ? problem.previous : problem.input) + image * from.image_stride +
                          (is_previous ? z + problem.num_previous : z) * from.strides[0];
    copy_images(1, channels, plane, source, from, target, layout);
  }
}

}  // namespace

bool winograd_takes_epilogue(const ConvolutionProblem& problem) {
  const ConvolutionEpilogue& epilogue = problem.epilogue;
  return epilogue.scale == nullptr && product_activation(epilogue.activation).has_value();
}

Status convolve_winograd(const ConvolutionProblem& problem, int64_t tile, const SpatialSizes& padding_after) {
  const ConvolutionEpilogue& epilogue = problem.epilogue;
  const bool takes_all = winograd_takes_epilogue(problem);
  WinogradOptions options;
  options.padding = {problem.padding[1], padding_after[1], problem.padding[2], padding_after[2]};
  TensorView bias;
  if (epilogue.bias != nullptr && epilogue.scale == nullptr) {
    const std::array<int64_t, 1> shape{problem.out_channels};
    QX_ASSIGN_OR_RETURN(bias, TensorView::contiguous(const_cast<float*>(epilogue.bias), DType::kFloat32, shape));
    options.bias = &bias;
  }
  if (takes_all) {
    options.residual_before_activation = epilogue.residual_before_activation;
    options.activation = *product_activation(epilogue.activation);
  }
  const WinogradWeight weight{problem.weight, tile, problem.in_channels * problem.kernel[0], problem.out_channels};
  const bool is_plane = problem.kernel[0] == 1 && problem.in[0] == 1 && problem.out[0] == 1;
  const int64_t images_at_once = is_plane ? problem.images : 1;
  const SpatialSizes plane = {1, problem.in[1], problem.in[2]};
  const int64_t depth_channels = problem.in_channels * problem.kernel[0];
  const Workspace planes(is_plane ? 0 : depth_channels * plane[1] * plane[2]);
  for (int64_t image = 0; image < problem.images; image += images_at_once) {
    for (int64_t frame = 0; frame < problem.out[0]; ++frame) {
      TensorView input;
      if (is_plane) {
        QX_ASSIGN_OR_RETURN(
            input, plane_view(problem.input, problem.input_layout, problem.images, depth_channels, problem.in, 0));
      } else {
        gather_frames(problem, image, frame, planes.data());
        QX_ASSIGN_OR_RETURN(input, plane_view(planes.data(), channels_last_layout(depth_channels, plane), 1,
                                              depth_channels, problem.in, 0));
      }
      const ImageLayout& layout = problem.output_layout;
      QX_ASSIGN_OR_RETURN(const TensorView output,
                          plane_view(problem.output + image * layout.image_stride, layout, images_at_once,
                                     problem.out_channels, problem.out, frame));
      TensorView residual;
      if (takes_all && epilogue.residual != nullptr) {
        const ImageLayout& rows = epilogue.residual_layout;
        QX_ASSIGN_OR_RETURN(residual, plane_view(epilogue.residual + image * rows.image_stride, rows, images_at_once,
                                                 problem.out_channels, problem.out, frame));
        options.residual = &residual;
      }
      QX_RETURN_IF_ERROR(winograd_convolution(input, weight, output, options));
    }
  }
  return ok_status();
}

}  // namespace qx::kernels
