// Checks of a convolution's arguments: they name the argument, what it is and what was expected.
#pragma once

#include "quincunx/kernels/convolution/convolution.h"
#include "quincunx/kernels/convolution/convolution_problem.h"

namespace qx::kernels {

// Rank, groups and sizes of an unpacked weight.
Status check_weight_shape(const TensorView& weight, const ConvolutionGeometry& geometry);

// The problem without its weight; scale and bias are null. All tensors may have any layout.
Result<ConvolutionProblem> checked_problem(const TensorView& input, const PackedConvolutionWeight& weight,
                                           const TensorView& output, const ConvolutionOptions& options);

}  // namespace qx::kernels
