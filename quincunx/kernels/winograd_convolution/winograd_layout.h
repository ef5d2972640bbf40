// Copies between tensors with any strides and pixels whose channels are adjacent.
#pragma once

#include "quincunx/kernels/winograd_convolution/winograd_convolution_kernel.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// True if the channels of `view`, [batch, channels, height, width], are adjacent: no copy is needed.
bool has_adjacent_channels(const TensorView& view);

// The strides of such a view, and those of a contiguous copy.
PixelStrides pixel_strides_of(const TensorView& view);
PixelStrides contiguous_pixel_strides(const TensorView& view);

// Copies `view` to `pixels`, [batch, height, width, channels] without gaps, or back, on as many threads as parallel_for
// gives.
void gather_pixels(const TensorView& view, float* pixels);
void scatter_pixels(const float* pixels, const TensorView& view);

}  // namespace qx::kernels
