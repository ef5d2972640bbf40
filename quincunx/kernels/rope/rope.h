// Rotary position embedding (RoPE): pairs of a head's elements are rotated by an angle that grows with the position.
#pragma once

#include <cstdint>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Which elements of a head form the i-th pair, with R rotary dimensions.
enum class RopeForm {
  kHalfSplit,    // i and i + R/2: GPT-NeoX, Llama in transformers
  kInterleaved,  // 2i and 2i + 1: GPT-J, the paper (arXiv 2104.09864), diffusion transformers
};

struct RopeOptions {
  RopeForm form = RopeForm::kHalfSplit;
  int sequence_dim = 1;  // 1 for [B, S, H, D], 2 for [B, H, S, D]
};

// output = input with the pairs (a, b) of its first R = 2 * cos.size(1) head elements replaced by
// (a cos - b sin, b cos + a sin) and the other D - R copied. Input and output: four dimensions of equal shape and
// dtype, float32, bfloat16 or float16 (computed in f32, rounded once), any strides; output may be input. cos and sin:
// float32 [S, R/2], any strides; a later position is a later row, so a decoding step hands over the rows of its own
// positions. Thread-safe.
//   apply_rope(q, cos, sin, {.form = RopeForm::kInterleaved}, q)
Status apply_rope(const TensorView& input, const TensorView& cos, const TensorView& sin, const RopeOptions& options,
                  const TensorView& output);

struct RopeTableOptions {
  double theta = 10000;        // the base; positive, finite
  int64_t first_position = 0;  // the position of row 0
  double position_scale = 1;   // positions are multiplied by it (linear interpolation of contexts); finite
};

// cos[s, i] and sin[s, i] of (first_position + s) * position_scale * theta^(-2i/R) with R = 2 * cos.size(1), computed
// in f64 and rounded once. cos and sin: float32 [S, R/2], any strides, not the same memory.
Status fill_rope_tables(const RopeTableOptions& options, const TensorView& cos, const TensorView& sin);

}  // namespace qx::kernels
