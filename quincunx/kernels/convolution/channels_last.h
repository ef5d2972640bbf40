// Copies between layouts: to adjacent channels and back.
#pragma once

#include <cstdint>

#include "quincunx/kernels/convolution/convolution_problem.h"

namespace qx::kernels {

// The dense layout with adjacent channels.
ImageLayout channels_last_layout(int64_t channels, const SpatialSizes& sizes);

// Copies [images, channels, sizes ...] from any layout to any other, on as many threads as parallel_for gives.
void copy_images(int64_t images, int64_t channels, const SpatialSizes& sizes, const float* source,
                 const ImageLayout& source_layout, float* target, const ImageLayout& target_layout);

// Strides of [batch, channels, spatial ...] as three spatial dimensions, of which missing ones stand in front.
ImageLayout layout_of(const TensorView& view);

// See next_frames; all arguments were checked.
void copy_last_frames(const TensorView* previous, const TensorView& input, const TensorView& next);

}  // namespace qx::kernels
