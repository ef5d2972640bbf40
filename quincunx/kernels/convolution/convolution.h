// Convolutions of one to three spatial dimensions in f32 with an epilogue:
//
//   sum[n, k, p] = sum over c, t of weight[k, c, t] * input[n, c, p * stride + t * dilation - padding_before]
//   output       = activation(scale[k] * sum + bias[k] (+ residual)) (+ residual)
//
// Zeros stand around the input. Groups, depthwise and transposed convolutions as in PyTorch. Tensors are [batch,
// channels, spatial ...] with any strides; those whose channels are adjacent (channels-last) are read and written as
// they are, chains of them need no reordering, all others pass through a copy. Pack a weight once and use it often.
// The bits of an output depend neither on the number of threads nor on the rest of the batch.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

inline constexpr int kMaxSpatialDims = 3;
// One entry a spatial dimension, in the order of the tensors' dimensions; further entries are not read.
using SpatialSizes = std::array<int64_t, kMaxSpatialDims>;

struct ConvolutionGeometry {
  SpatialSizes stride = {1, 1, 1};
  SpatialSizes dilation = {1, 1, 1};
  // Zeros before and after the input; of a transposed convolution: what is cut off the output.
  SpatialSizes padding_before = {0, 0, 0};
  SpatialSizes padding_after = {0, 0, 0};
  SpatialSizes output_padding = {0, 0, 0};  // transposed only: added after the output, less than the stride
  int64_t groups = 1;
  bool transposed = false;
};

enum class ConvolutionActivation : uint8_t { kNone, kRelu, kGeluTanh, kGeluErf, kSilu, kHardswish, kClamp };

// "none", "relu", "gelu_tanh", "gelu_erf", "silu", "hardswish" or "clamp".
Result<ConvolutionActivation> convolution_activation_from_name(std::string_view name);

struct ConvolutionOptions {
  ConvolutionGeometry geometry;
  const TensorView* scale = nullptr;  // f32 [out_channels], any stride
  const TensorView* bias = nullptr;   // f32 [out_channels], any stride
  ConvolutionActivation activation = ConvolutionActivation::kNone;
  float clamp_low = 0.0f;  // kClamp: ReLU6 is [0, 6]
  float clamp_high = 6.0f;
  const TensorView* residual = nullptr;  // f32, the shape of the output, any strides
  bool residual_before_activation = false;
  // Three dimensions: frames f32 [batch, in_channels, F, height, width] that came before the input, in place of the
  // last F zeros of padding_before[0]. A video in chunks gives the bits of the whole video: see next_frames.
  const TensorView* previous_frames = nullptr;
};

// How the weight lies in memory, which decides the algorithm.
enum class ConvolutionForm : uint8_t {
  kPanels,     // panels of 16 output channels: an implicit matrix product
  kDepthwise,  // blocks of 16 channels
  kWinograd,   // transformed: see winograd_convolution.h
};

// Does not own its memory.
struct PackedConvolutionWeight {
  const float* data = nullptr;
  ConvolutionForm form = ConvolutionForm::kPanels;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t groups = 1;
  bool transposed = false;
  int num_spatial_dims = 0;
  SpatialSizes kernel = {1, 1, 1};
  int64_t winograd_tile = 0;
};

struct ConvolutionPacking {
  // Excludes Winograd, whose error is up to 8 times that of a direct sum (docs/kernels.md).
  bool exact = false;
  // Sizes that outputs will usually have, if known: small images want another algorithm. Any size works later.
  SpatialSizes typical_output = {0, 0, 0};
};

// Floats that the packed weight takes. `weight`: f32 [out_channels, in_channels / groups, kernel ...] or, transposed,
// [in_channels, out_channels / groups, kernel ...].
Result<int64_t> packed_convolution_weight_size(const TensorView& weight, const ConvolutionGeometry& geometry,
                                               const ConvolutionPacking& packing = {});

// Packs `weight`, any strides, into `storage`, which must outlive the result; 64-byte alignment helps. Groups and
// transposed must be those of the later calls; stride and dilation may differ only where Winograd is excluded.
Result<PackedConvolutionWeight> pack_convolution_weight(const TensorView& weight, const ConvolutionGeometry& geometry,
                                                        std::span<float> storage,
                                                        const ConvolutionPacking& packing = {});

// What pack_convolution_weight wrote into `storage`, or into memory that it was copied from.
Result<PackedConvolutionWeight> read_packed_convolution_weight(std::span<const float> storage);

// Sizes of the output's spatial dimensions.
Result<SpatialSizes> convolution_output_sizes(std::span<const int64_t> input_sizes, std::span<const int64_t> kernel,
                                              const ConvolutionGeometry& geometry);

// The output must have distinct elements and not overlap an input. Thread-safe.
Status convolution(const TensorView& input, const PackedConvolutionWeight& weight, const TensorView& output,
                   const ConvolutionOptions& options = {});
// Packs the weight on the fly, without Winograd.
Status convolution(const TensorView& input, const TensorView& weight, const TensorView& output,
                   const ConvolutionOptions& options = {});

// The last frames of previous_frames (may be null) followed by the input, as many as `next` [batch, channels, F,
// height, width] takes: what the next chunk needs as previous_frames. Zeros stand before the first frame of all.
Status next_frames(const TensorView* previous_frames, const TensorView& input, const TensorView& next);

}  // namespace qx::kernels
