// The definition of convolution in double precision, written for reading.
#pragma once

#include "quincunx/kernels/convolution/convolution_problem.h"

namespace qx::kernels {

// As convolution() for any layout of `problem`'s tensors. `weight` is not packed, contiguous: [out_channels,
// in_channels / groups, taps] or, transposed, [in_channels, out_channels / groups, taps]. Zeros of the padding do not
// take part. Writes [images, out_channels, pixels].
void convolution_reference(const ConvolutionProblem& problem, const float* weight, double* output);

}  // namespace qx::kernels
