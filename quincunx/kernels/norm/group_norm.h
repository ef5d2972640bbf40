// GroupNorm, optionally with SiLU, on channels-first and channels-last tensors.
#pragma once

#include <cstdint>
#include <optional>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

struct GroupNormOptions {
  int64_t num_groups = 1;                           // divides C
  std::optional<TensorView> weight = std::nullopt;  // [C]; absent means 1
  std::optional<TensorView> bias = std::nullopt;    // [C]; absent means 0
  double eps = 1e-5;                                // finite, not negative
  bool silu = false;                                // silu(y) is written
};

// output = (input - mean) / sqrt(variance + eps) * weight + bias, where mean and (biased) variance are those of the
// C / num_groups channels of a group in one sample. input and output: [B, C, ...] of float32, bfloat16 or float16,
// equal shape and dtype, any strides; the output may be the input. Where the channels lie side by side in both
// (channels-last), they are taken as they lie. Weight and bias: float32 or of the input's dtype, any stride. Statistics
// are taken in f32 over blocks about the block's own mean and joined in f64 in a fixed order, so that values far from
// zero lose nothing and the bits do not depend on the number of threads. Thread-safe.
//   group_norm(x, {.num_groups = 32, .weight = weight, .bias = bias, .silu = true}, y)
Status group_norm(const TensorView& input, const GroupNormOptions& options, const TensorView& output);

}  // namespace qx::kernels
