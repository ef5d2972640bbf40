// The 3 x 3 convolution in plain loops and double precision, written for reading: the measure of winograd_convolution.
#pragma once

#include "quincunx/kernels/winograd_convolution/winograd_convolution.h"

namespace qx::kernels {

// Arguments as those of winograd_convolution, weight [out_channels, in_channels, 3, 3]; `output` in row-major order.
// `magnitude`, if not null, gets the sums of |weight * input|, to which the error of any algorithm relates.
void winograd_reference(const TensorView& input, const TensorView& weight, const WinogradOptions& options,
                        double* output, double* magnitude = nullptr);

}  // namespace qx::kernels
