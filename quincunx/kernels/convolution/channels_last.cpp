#include "quincunx/kernels/convolution/channels_last.h"

#include <algorithm>
#include <cstring>

#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/convolution/channels_last.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convolution/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

void TransposeMatrix(const float* source, int64_t source_stride, int64_t rows, int64_t columns, float* target,
                     int64_t target_stride) {
  TransposeRows(source, source_stride, rows, columns, target, target_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(TransposeMatrix);

namespace {

// Elements that one task copies: 64 KiB.
constexpr int64_t kElementsPerTask = 16 << 10;

// The step from pixel to pixel, if all are equally far apart; 0 otherwise, and where an expanded view repeats pixels.
int64_t pixel_step(const ImageLayout& layout, const SpatialSizes& sizes) {
  int64_t step = 0;
  int64_t expected = 0;
  for (int i = kMaxSpatialDims - 1; i >= 0; --i) {
    if (sizes[i] == 1) continue;
    if (layout.strides[i] == 0) return 0;
    if (step == 0) step = expected = layout.strides[i];
    if (layout.strides[i] != expected) return 0;
    expected *= sizes[i];
  }
  return step == 0 ? 1 : step;
}

// `count` pixels of equal steps from the given elements on.
void copy_pixels(int64_t count, int64_t channels, const float* source, int64_t source_step, int64_t source_channel,
                 float* target, int64_t target_step, int64_t target_channel) {
  if (source_step == 1 && target_channel == 1) {
    return HWY_DYNAMIC_DISPATCH(TransposeMatrix)(source, source_channel, channels, count, target, target_step);
  }
  if (source_channel == 1 && target_step == 1) {
    return HWY_DYNAMIC_DISPATCH(TransposeMatrix)(source, source_step, count, channels, target, target_channel);
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* from = source + i * source_step;
    float* to = target + i * target_step;
    if (source_channel == 1 && target_channel == 1) {
      std::memcpy(to, from, static_cast<size_t>(channels) * sizeof(float));
    } else {
      for (int64_t c = 0; c < channels; ++c) to[c * target_channel] = from[c * source_channel];
    }
  }
}

void copy_lines(int64_t channels, const SpatialSizes& sizes, const float* source, const ImageLayout& from,
                float* target, const ImageLayout& to, int64_t image, int64_t begin, int64_t end) {
  for (int64_t line = begin; line < end; ++line) {
    const int64_t z = line / sizes[1];
    const int64_t y = line % sizes[1];
    copy_pixels(sizes[2], channels, source + image * from.image_stride + z * from.strides[0] + y * from.strides[1],
                from.strides[2], from.channel_stride,
                target + image * to.image_stride + z * to.strides[0] + y * to.strides[1], to.strides[2],
                to.channel_stride);
  }
}

}  // namespace

ImageLayout channels_last_layout(int64_t channels, const SpatialSizes& sizes) {
  ImageLayout layout;
  layout.channel_stride = 1;
  layout.strides = {sizes[1] * sizes[2] * channels, sizes[2] * channels, channels};
  layout.image_stride = sizes[0] * layout.strides[0];
  return layout;
}

void copy_images(int64_t images, int64_t channels, const SpatialSizes& sizes, const float* source,
                 const ImageLayout& source_layout, float* target, const ImageLayout& target_layout) {
  const int64_t source_step = pixel_step(source_layout, sizes);
  const int64_t target_step = pixel_step(target_layout, sizes);
  for (int64_t image = 0; image < images; ++image) {
    if (source_step == 0 || target_step == 0) {
      const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, sizes[2] * channels));
      parallel_for(0, sizes[0] * sizes[1], grain, [&](int64_t begin, int64_t end) {
        copy_lines(channels, sizes, source, source_layout, target, target_layout, image, begin, end);
      });
      continue;
    }
    // Whole cache lines of pixels.
    const int64_t grain = (std::max<int64_t>(1, kElementsPerTask / channels) + 15) / 16 * 16;
    const int64_t pixels = sizes[0] * sizes[1] * sizes[2];
    parallel_for(0, (pixels + grain - 1) / grain, 1, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * grain;
      copy_pixels(std::min(end * grain, pixels) - first, channels,
                  source + image * source_layout.image_stride + first * source_step, source_step,
                  source_layout.channel_stride, target + image * target_layout.image_stride + first * target_step,
                  target_step, target_layout.channel_stride);
    });
  }
}

ImageLayout layout_of(const TensorView& view) {
  ImageLayout layout;
  layout.image_stride = view.stride(0);
  layout.channel_stride = view.stride(1);
  const int missing = kMaxSpatialDims + 2 - view.num_dims();
  for (int i = 0; i < view.num_dims() - 2; ++i) layout.strides[missing + i] = view.stride(i + 2);
  return layout;
}

void copy_last_frames(const TensorView* previous, const TensorView& input, const TensorView& next) {
  const ImageLayout to = layout_of(next);
  const int64_t num_previous = previous != nullptr ? previous->size(2) : 0;
  const SpatialSizes plane = {1, next.size(3), next.size(4)};
  for (int64_t i = 0; i < next.size(2); ++i) {
    // Counts from the first frame of the input.
    const int64_t frame = input.size(2) - next.size(2) + i;
    float* target = next.data_as<float>() + i * to.strides[0];
    if (frame >= -num_previous && next.num_elements() > 0) {
      const TensorView& from = frame < 0 ? *previous : input;
      const ImageLayout layout = layout_of(from);
      const int64_t index = frame < 0 ? frame + num_previous : frame;
      copy_images(next.size(0), next.size(1), plane, from.data_as<const float>() + index * layout.strides[0], layout,
                  target, to);
      continue;
    }
    for (int64_t image = 0; image < next.size(0); ++image) {
      for (int64_t c = 0; c < next.size(1); ++c) {
        for (int64_t pixel = 0; pixel < plane[1] * plane[2]; ++pixel) {
          target[image * to.image_stride + c * to.channel_stride + pixel / plane[2] * to.strides[1] +
                 pixel % plane[2] * to.strides[2]] = 0.0f;
        }
      }
    }
  }
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
