// One thread's share of a Winograd convolution: the functions that exist once for each instruction set.
//
//   V = transformed input, U = transformed weights, both at each of (m + 2)^2 positions p; M[p] = V[p] U[p]
//
// A block of tiles is cut into groups of rows as equal as they can be. Per group, V is [p][blocks of 16 channels][rows
// of the group][16]; U is [panels of 16 output channels][p][input channels][16].
#pragma once

#include <cstdint>

#include "quincunx/kernels/gemm/gemm.h"
#include "quincunx/kernels/winograd_convolution/winograd_points.h"

namespace qx::kernels {

inline constexpr int64_t kWinogradPanel = 16;

constexpr int64_t winograd_panels(int64_t channels) { return (channels + kWinogradPanel - 1) / kWinogradPanel; }

// Pixels whose channels are adjacent.
struct PixelStrides {
  int64_t image = 0;
  int64_t row = 0;
  int64_t pixel = 0;
};

struct WinogradProblem {
  int64_t output_tile = 4;
  int64_t batch = 0;

  const float* input = nullptr;
  PixelStrides input_strides;
  int64_t height = 0, width = 0, in_channels = 0;
  int64_t padding_top = 0, padding_left = 0;

  const float* weight = nullptr;  // U

  float* output = nullptr;
  PixelStrides output_strides;
  int64_t output_height = 0, output_width = 0, out_channels = 0;
  const float* bias = nullptr;      // contiguous
  const float* residual = nullptr;  // null for none
  PixelStrides residual_strides;
  bool residual_before_activation = false;
  Activation activation = Activation::kNone;

  int64_t tiles_down() const { return (output_height + output_tile - 1) / output_tile; }
  int64_t tiles_across() const { return (output_width + output_tile - 1) / output_tile; }
  int64_t num_tiles() const { return batch * tiles_down() * tiles_across(); }
  int64_t positions() const { return winograd_positions(output_tile); }
  int64_t padded_in_channels() const { return winograd_panels(in_channels) * kWinogradPanel; }
};

// Tiles [begin, end) in the order image, row, column.
struct WinogradBlock {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Floats of V for a block of `tiles` tiles, and of the products that winograd_multiply keeps.
int64_t winograd_input_size(const WinogradProblem& problem, int64_t tiles);
int64_t winograd_products_size(const WinogradProblem& problem, int64_t tiles);

// Writes the blocks of 16 channels [channel_begin, channel_end) of V for the tiles of `block`.
void winograd_transform_input(const WinogradProblem& problem, const WinogradBlock& block, int64_t channel_begin,
                              int64_t channel_end, float* v);

// Computes the outputs of the tiles of `block` in panels [panel_begin, panel_end) of 16 channels, with the epilogue.
void winograd_multiply(const WinogradProblem& problem, const WinogradBlock& block, int64_t panel_begin,
                       int64_t panel_end, const float* v, float* products);

// target[c * target_stride + r] = source[r * source_stride + c] for `rows` rows of `columns` elements.
void winograd_transpose(const float* source, int64_t source_stride, int64_t rows, int64_t columns, float* target,
                        int64_t target_stride);

}  // namespace qx::kernels
