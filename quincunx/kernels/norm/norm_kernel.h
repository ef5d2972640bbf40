// RMSNorm and LayerNorm of a few dense rows together: the arithmetic below norm.h.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"

namespace qx::kernels {

// Rows of `length` elements of `dtype`. Without a residual a row is summed while the second before it is written.
struct NormBlock {
  static constexpr int64_t kMaxRows = 32;

  DType dtype;
  bool center;  // LayerNorm
  float eps;
  int64_t length;
  int64_t num_rows;
  // Null, or in the order of arrange_parameter.
  const float* weight;
  const float* bias;
  const void* x[kMaxRows];
  // Null in the first place, or what is added first. `total` takes the rounded sums, which are then normalised; it may
  // be y. Where `sum` is not null they are also written there, past the caches.
  const void* residual[kMaxRows];
  void* total[kMaxRows];
  void* sum[kMaxRows];
  void* y[kMaxRows];
  bool stream;    // y does not fit into the caches and is aligned to a vector
  int64_t ahead;  // bytes from what is read to what is to be fetched beside it, or 0
};

void normalize_block(const NormBlock& block);

// Elements that arrange_parameter may write beyond `count`.
inline constexpr int64_t kParameterPadding = 64;
// A parameter in the order in which the kernel meets it beside rows of `dtype`.
void arrange_parameter(DType dtype, const float* values, int64_t count, float* arranged);

}  // namespace qx::kernels
