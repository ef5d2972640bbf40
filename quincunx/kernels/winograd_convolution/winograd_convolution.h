// 3 x 3 convolution with stride 1 in f32 by Winograd's minimal filtering (arXiv 1509.09308):
//
//   output[n, k, y, x] = activation(sum over c, i, j of weight[k, c, i, j] * input[n, c, y + i - top, x + j - left]
//                                   + bias[k]) + residual[n, k, y, x]
//
// F(m, 3) computes tiles of m x m outputs from (m + 2) x (m + 2) inputs with (m + 2)^2 instead of 9 m^2 multiplications
// for each pair of channels: 4 times fewer for m = 4, 2.25 times fewer for m = 2. The price is rounding: on normal
// numbers the largest error is below 2e-5 of the largest output (4e-6 seen with 512 channels, of direct summation
// 1e-6). Outputs of one tile share their rounding errors, so small outputs beside large ones lose relative accuracy,
// and a NaN or infinity makes all outputs of the tiles that read it NaN. Callers that need more must not come here.
#pragma once

#include <cstdint>
#include <span>

#include "quincunx/base/status.h"
#include "quincunx/kernels/gemm/gemm.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Zeros around the input, any number of them.
struct WinogradPadding {
  int64_t top = 0;
  int64_t bottom = 0;
  int64_t left = 0;
  int64_t right = 0;
};

struct WinogradShape {
  int64_t batch = 1;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t output_height = 0;
  int64_t output_width = 0;
};

// Whether Winograd is faster than a direct 3 x 3 convolution of this shape, and the m (2 or 4) of F(m, 3) that is the
// faster one. Both follow measurements against the implicit matrix product of kernels/convolution on 500 shapes.
bool prefers_winograd(const WinogradShape& shape);
int64_t winograd_output_tile(const WinogradShape& shape);

// Transformed weights. Does not own its memory.
struct WinogradWeight {
  const float* data = nullptr;
  int64_t output_tile = 4;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
};

// Floats that transformed weights take.
Result<int64_t> winograd_weight_size(int64_t output_tile, int64_t in_channels, int64_t out_channels);

// Transforms `weight`, f32 [out_channels, in_channels, 3, 3] with any strides, into `storage`, which must hold
// winograd_weight_size floats and outlive the result. 64-byte alignment helps.
Result<WinogradWeight> pack_winograd_weight(const TensorView& weight, int64_t output_tile, std::span<float> storage);

struct WinogradOptions {
  WinogradPadding padding;
  const TensorView* bias = nullptr;  // f32 [out_channels], any stride
  Activation activation = Activation::kNone;
  const TensorView* residual = nullptr;  // f32, the shape of the output, any strides
  bool residual_before_activation = false;
};

// input [batch, in_channels, height, width], output [batch, out_channels, height + top + bottom - 2, width + left +
// right - 2], both with any strides; channels whose elements are adjacent (channels-last) save a copy. The output must
// not overlap an input. The same bits for any number of threads. Thread-safe.
Status winograd_convolution(const TensorView& input, const WinogradWeight& weight, const TensorView& output,
                            const WinogradOptions& options = {});

}  // namespace qx::kernels
