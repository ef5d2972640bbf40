#include "quincunx/kernels/winograd_convolution/winograd_layout.h"

#include <algorithm>

#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Pixels that are copied together: 64 of them and a cache line of channels fill a quarter of the L1 cache.
constexpr int64_t kChunkPixels = 64;

// `count` pixels in a row of the view: element (c, i) is at planes[c * channel_stride + i * pixel_stride].
struct Chunk {
  float* planes;
  int64_t pixel;  // the first, counted over the whole view
  int64_t count;
};

// Calls body for chunks that cover the view.
template <typename Body>
void for_each_chunk(const TensorView& view, const Body& body) {
  const bool is_plane = view.size(2) <= 1 || view.stride(2) == view.size(3) * view.stride(3);
  const int64_t rows = is_plane ? 1 : view.size(2);
  const int64_t pixels_a_row = view.size(2) * view.size(3) / rows;
  const int64_t chunks_a_row = (pixels_a_row + kChunkPixels - 1) / kChunkPixels;
  parallel_for(0, view.size(0) * rows * chunks_a_row, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % chunks_a_row * kChunkPixels;
      const int64_t row = i / chunks_a_row % rows;
      const int64_t image = i / chunks_a_row / rows;
      float* planes = view.data_as<float>() + image * view.stride(0) + row * view.stride(2) + first * view.stride(3);
      body(Chunk{planes, (image * rows + row) * pixels_a_row + first, std::min(kChunkPixels, pixels_a_row - first)});
    }
  });
}

bool is_empty(const TensorView& view) { return view.num_elements() == 0; }

}  // namespace

bool has_adjacent_channels(const TensorView& view) { return view.size(1) <= 1 || view.stride(1) == 1; }

PixelStrides pixel_strides_of(const TensorView& view) { return {view.stride(0), view.stride(2), view.stride(3)}; }

PixelStrides contiguous_pixel_strides(const TensorView& view) {
  const int64_t row = view.size(3) * view.size(1);
  return {view.size(2) * row, row, view.size(1)};
}

void gather_pixels(const TensorView& view, float* pixels) {
  if (is_empty(view)) return;
  const int64_t channels = view.size(1);
  for_each_chunk(view, [&](const Chunk& chunk) {
    float* target = pixels + chunk.pixel * channels;
    if (view.stride(3) == 1) {
      return winograd_transpose(chunk.planes, view.stride(1), channels, chunk.count, target, channels);
    }
    for (int64_t i = 0; i < chunk.count; ++i) {
      for (int64_t c = 0; c < channels; ++c) {
        target[i * channels + c] = chunk.planes[c * view.stride(1) + i * view.stride(3)];
      }
    }
  });
}

void scatter_pixels(const float* pixels, const TensorView& view) {
  if (is_empty(view)) return;
  const int64_t channels = view.size(1);
  for_each_chunk(view, [&](const Chunk& chunk) {
    const float* source = pixels + chunk.pixel * channels;
    if (view.stride(3) == 1) {
      return winograd_transpose(source, channels, chunk.count, channels, chunk.planes, view.stride(1));
    }
    for (int64_t i = 0; i < chunk.count; ++i) {
      for (int64_t c = 0; c < channels; ++c) {
        chunk.planes[c * view.stride(1) + i * view.stride(3)] = source[i * channels + c];
      }
    }
  });
}

}  // namespace qx::kernels
