// RMSNorm and LayerNorm over the last dimension.
#pragma once

#include <optional>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

struct NormOptions {
  std::optional<TensorView> weight = std::nullopt;  // [N]; absent means 1
  std::optional<TensorView> bias = std::nullopt;    // [N]; absent means 0; layer_norm only
  double eps = 1e-5;                                // finite, not negative
  // What is normalised is input + residual, rounded to their dtype; `sum`, which may be the residual, receives it.
  std::optional<TensorView> residual = std::nullopt;  // of the input's shape and dtype
  std::optional<TensorView> sum = std::nullopt;       // the same; needs a residual
  // Adaptive norms: the result times (1 + scale), plus shift. Of the input's shape, or 1 in place of any size but the
  // last: [B, 1, N] for [B, S, N].
  std::optional<TensorView> scale = std::nullopt;
  std::optional<TensorView> shift = std::nullopt;
};

// Both take an input [..., N] of float32, bfloat16 or float16 and an output of the same shape and dtype, any strides;
// the output may be the input. Weight, bias, scale and shift are float32 or of the input's dtype, any stride. Sums are
// taken in f32 in an order that depends on N and the instruction set only: the same bits for any number of threads.
// Thread-safe.

// output = input / sqrt(mean(input^2) + eps) * weight. Squares overflow for |input| > 1.8e19: the row is then 0.
//   rms_norm(x, {.weight = weight, .eps = 1e-6, .residual = hidden, .sum = hidden}, y)
Status rms_norm(const TensorView& input, const NormOptions& options, const TensorView& output);

// output = (input - mean) / sqrt(variance + eps) * weight + bias with the biased variance. Mean and variance are taken
// about an element of the row or, where that lies far from the others, about a first mean, so that rows far from zero
// lose nothing to cancellation.
//   layer_norm(x, {.eps = 1e-6, .scale = scale, .shift = shift}, y)
Status layer_norm(const TensorView& input, const NormOptions& options, const TensorView& output);

}  // namespace qx::kernels
