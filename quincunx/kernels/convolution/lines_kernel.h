// Products of short runs: a line of output pixels whose windows are evenly apart in the input, so that one pointer a
// run names the elements under all of them. The functions that exist once for each instruction set.
#pragma once

#include <cstdint>

#include "quincunx/kernels/convolution/convolution_problem.h"

namespace qx::kernels {

// Pixels that are computed together, at most.
inline constexpr int64_t kStripPixels = 112;

// Neighbours of an output line: pixels [x_begin, x_end) of line y of plane z.
struct LineStrip {
  int64_t image = 0, z = 0, y = 0;
  int64_t x_begin = 0, x_end = 0;
};

// The fewest pixels that a strip must have for the instruction set that runs.
int64_t min_strip_pixels();

// Floats of scratch memory that run_line_strip needs.
int64_t line_workspace_size(const ConvolutionProblem& problem);

// Computes a strip with its epilogue. The taps of a line are adjacent in the input, or there is one; channels are
// adjacent in output and residual. `bias` is contiguous with kBiasPadding readable floats behind it, or null.
void run_line_strip(const ConvolutionProblem& problem, const LineStrip& strip, const float* bias, float* workspace);

}  // namespace qx::kernels
