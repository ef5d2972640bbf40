// The mask of attention as its kernels read it: biases of scores in base 2, -inf where a query does not see a key.
#pragma once

#include <cstdint>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// A mask is bool, where false hides a key, or float32, which is added to the scaled scores and hides with -inf.
// [B, H, S_q, S_kv], any strides, so that it may repeat along any dimension (stride 0).
Status check_attention_mask(const TensorView& query, const TensorView& key, const TensorView& mask);

// The mask of one head for the queries from `first_row` on. The orders, where not null, say which row of the tensors
// a position of the sequence is.
struct MaskRows {
  const uint8_t* seen = nullptr;  // either this
  const float* bias = nullptr;    // or this; neither: no mask
  int64_t row_stride = 0;
  int64_t key_stride = 0;
  const int64_t* row_order = nullptr;
  const int64_t* key_order = nullptr;

  bool is_present() const { return seen != nullptr || bias != nullptr; }
  int64_t row_offset(int64_t row) const { return (row_order == nullptr ? row : row_order[row]) * row_stride; }
};

MaskRows mask_rows(const TensorView& mask, int64_t batch, int64_t head, int64_t first_row = 0);

// out[i] = what is added to the base-2 score of key position first + i; exactly -inf where it is hidden.
void fill_mask_row(const MaskRows& mask, int64_t row, int64_t first, int64_t count, float* out);

// Some of the rows sees some of the keys [first, first + count).
bool sees_any(const MaskRows& mask, int64_t num_rows, int64_t first, int64_t count);

}  // namespace qx::kernels
