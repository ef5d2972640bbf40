// Convolution in double precision, by its definition: for what the f32 kernel does not take.
#pragma once

#include "quincunx/base/status.h"
#include "quincunx/kernels/convolution/convolution.h"

namespace qx::lite {

// x [batch, channels, spatial ...], weight as torch has it; any strides and floating-point dtypes.
Status convolve_plainly(const TensorView& x, const TensorView& weight, const TensorView* bias,
                        const kernels::ConvolutionGeometry& geometry, const TensorView& result);

}  // namespace qx::lite
