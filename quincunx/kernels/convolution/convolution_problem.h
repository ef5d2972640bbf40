// A checked convolution in the form that the kernels work on: three spatial dimensions, of which unused ones are 1 and
// stand in front, and raw pointers.
#pragma once

#include <cstdint>
#include <vector>

#include "quincunx/kernels/convolution/convolution.h"

namespace qx::kernels {

inline constexpr int64_t kChannelBlock = 16;  // channels of a panel of weights

inline int64_t num_channel_blocks(int64_t channels) { return (channels + kChannelBlock - 1) / kChannelBlock; }

// [images, channels, depth, height, width] by strides in elements.
struct ImageLayout {
  int64_t image_stride = 0;
  int64_t channel_stride = 0;
  SpatialSizes strides = {0, 0, 0};
};

struct ConvolutionEpilogue {
  const float* scale = nullptr;  // contiguous
  const float* bias = nullptr;   // contiguous
  ConvolutionActivation activation = ConvolutionActivation::kNone;
  float clamp_low = 0.0f;
  float clamp_high = 0.0f;
  const float* residual = nullptr;
  ImageLayout residual_layout;
  bool residual_before_activation = false;
};

struct ConvolutionProblem {
  int64_t images = 0;
  int64_t groups = 1;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  SpatialSizes in = {1, 1, 1}, out = {1, 1, 1}, kernel = {1, 1, 1};
  SpatialSizes stride = {1, 1, 1}, dilation = {1, 1, 1}, padding = {0, 0, 0};
  bool transposed = false;

  const float* input = nullptr;
  ImageLayout input_layout;
  const float* previous = nullptr;  // frames -num_previous ... -1
  int64_t num_previous = 0;
  ImageLayout previous_layout;
  const float* weight = nullptr;  // behind the header
  float* output = nullptr;
  ImageLayout output_layout;
  ConvolutionEpilogue epilogue;

  int64_t in_per_group() const { return in_channels / groups; }
  int64_t out_per_group() const { return out_channels / groups; }
  int64_t num_taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t in_pixels() const { return in[0] * in[1] * in[2]; }
  int64_t out_pixels() const { return out[0] * out[1] * out[2]; }
};

// What one dimension of a phase reads: output index first + i * step, for i in [0, count), sums over the taps that
// reach input index i * input_step + offset. Plain convolutions have one phase, transposed ones one for each remainder
// of the output index by the stride.
struct DimPhase {
  struct Tap {
    int64_t index, offset;
  };
  int64_t first = 0, step = 1, count = 0, input_step = 1;
  std::vector<Tap> taps;
};

// The phases of dimension `dim`, each with count > 0.
std::vector<DimPhase> dim_phases(const ConvolutionProblem& problem, int dim);

// Line y of plane z of the input, of the previous frames for z < 0; null in the padding.
const float* input_line(const ConvolutionProblem& problem, int64_t image, int64_t z, int64_t y);

bool has_adjacent_channels(const ImageLayout& layout, int64_t channels);

// True for windows of several taps whose runs share sets of the L1 cache, because pixels or their steps are a multiple
// of 4096 bytes apart: convolve_panels is 7 to 15 % faster with a copy whose pixels are a little further apart.
bool prefers_pixels_apart(const ConvolutionProblem& problem);

// On as many threads as parallel_for gives. Input and previous frames must have adjacent channels; convolve_depthwise
// wants them of output and residual too.
void convolve_panels(const ConvolutionProblem& problem);
void convolve_depthwise(const ConvolutionProblem& problem);

// Applies the epilogue to the sums that the output holds, channels adjacent in output and residual.
void finish_output(const ConvolutionProblem& problem);

// Floats of packed weights without the header.
int64_t panel_weight_size(int64_t groups, int64_t in_per_group, int64_t out_per_group, int64_t taps);
int64_t depthwise_weight_size(int64_t channels, int64_t taps);

}  // namespace qx::kernels
