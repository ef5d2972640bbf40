// 1 x 1 convolutions without padding: matrix products as they are. Those of small images are gemm's.
#pragma once

#include <optional>

#include "quincunx/kernels/convolution/convolution_problem.h"
#include "quincunx/kernels/gemm/gemm.h"

namespace qx::kernels {

// The activation by gemm's name, if gemm has it.
std::optional<Activation> product_activation(ConvolutionActivation activation);

// The step from each of `sizes` pixels to the next, `stride` of the layout's pixels apart; 0 where lines or planes do
// not join at the same step, and where an expanded view repeats pixels.
int64_t even_step(const ImageLayout& layout, const SpatialSizes& sizes, const SpatialSizes& stride);

// True for one tap, one group, no padding, and pixels that are evenly apart in input, output and residual.
bool has_even_pixels(const ConvolutionProblem& problem);

// True for frames of few of such pixels, evenly apart within each, with adjacent channels in the input, and an epilogue
// that gemm knows. The channels of output and residual may be apart, as those of several frames are where those of one
// are not, and frames may lie anywhere: chunks of a video take the same path.
bool is_pointwise(const ConvolutionProblem& problem);

// On as many threads as parallel_for gives. All channels must be adjacent.
void convolve_pointwise(const ConvolutionProblem& problem);

}  // namespace qx::kernels
