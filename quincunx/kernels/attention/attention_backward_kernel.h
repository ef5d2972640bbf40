// The per-instruction-set part of the backward pass of attention.
#pragma once

#include <cstdint>

namespace qx::kernels {

// A times a matrix in panels of 16 columns. Element (m, k) of A is a[m * a_row_step + k * a_depth_step], element (k, n)
// of the other panels[n / 16 * panel_rows * 16 + k * 16 + n % 16].
struct PanelProduct {
  const float* a = nullptr;
  int64_t a_row_step = 0;
  int64_t a_depth_step = 1;
  int64_t rows = 0;
  int64_t depth = 0;
  const float* panels = nullptr;
  int64_t panel_rows = 0;
  int64_t columns = 0;
  // 64-byte aligned, the stride a multiple of 16; columns are rounded up to 16.
  float* c = nullptr;
  int64_t c_stride = 0;
};

// C += A B, or C = A B.
void accumulate_product(const PanelProduct& product);
void store_product(const PanelProduct& product);

struct WeightRow {
  float* scores = nullptr;        // in: query key^T; out: weights 2^(scores * scale_log2 - log2_sum)
  float* weight_grads = nullptr;  // in: output gradient value^T; out: weights * (weight_grads - delta) * scale
  int64_t count = 0;              // visible keys; the rest up to `end` becomes zero
  const float* bias = nullptr;    // of a mask in base 2, -inf where hidden; null: none; room as for scores
  int64_t end = 0;                // the rows have room up to the next multiple of 16, 64-byte aligned
  float scale = 1;
  float log2_sum = 0;
  float delta = 0;
};
void differentiate_weights(const WeightRow& row);

}  // namespace qx::kernels
