// Dense convolutions over few channels, whose runs are too short for panels of pointers.
#pragma once

#include "quincunx/kernels/convolution/convolution_problem.h"

namespace qx::kernels {

// True for one group of few input channels with adjacent channels everywhere, whose taps of a line are adjacent or one,
// and lines that are long enough. 1 x 1 convolutions of evenly spaced pixels are one line.
bool is_line_convolution(const ConvolutionProblem& problem);

// On as many threads as parallel_for gives.
void convolve_lines(const ConvolutionProblem& problem);

}  // namespace qx::kernels
