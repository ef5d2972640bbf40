// How the tiles of a convolution are spread over caches and threads.
#pragma once

#include "quincunx/kernels/winograd_convolution/winograd_convolution_kernel.h"

namespace qx::kernels {

// Computes `problem`, whose operands have been checked, on as many threads as parallel_for gives.
void winograd_convolve(const WinogradProblem& problem);

}  // namespace qx::kernels
