// Convolutions whose weight was packed for Winograd.
#pragma once

#include "quincunx/kernels/convolution/convolution.h"
#include "quincunx/kernels/convolution/convolution_problem.h"

namespace qx::kernels {

// True if the Winograd kernel knows the whole epilogue; otherwise only the bias, and finish_output does the rest.
bool winograd_takes_epilogue(const ConvolutionProblem& problem);

// Output and residual as in `problem`, any layout; `tile` is the weight's.
Status convolve_winograd(const ConvolutionProblem& problem, int64_t tile, const SpatialSizes& padding_after);

}  // namespace qx::kernels
