// The per-instruction-set part of attention: packing of one key/value head, and one block of queries of one head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "quincunx/base/dtype.h"
#include "quincunx/kernels/attention/attention_mask.h"
#include "quincunx/kernels/convert/convert.h"

namespace qx::kernels {

// Keys and values are packed 16 wide: key panel p holds [D][16 keys], value panel p holds [padded keys][16 columns].
inline constexpr int64_t kAttentionPanel = 16;
// Queries and keys that are handled at a time. 96 = 8 register tiles of 12 rows or 16 of 6; a block of 128 keys and
// values with D = 128 is 128 KiB and stays in L2 while the tiles pass over it.
inline constexpr int64_t kAttentionQueryBlock = 96;
inline constexpr int64_t kAttentionKeyBlock = 128;

inline int64_t round_up_to_panel(int64_t n) { return (n + kAttentionPanel - 1) / kAttentionPanel * kAttentionPanel; }

// Rows of float32, bfloat16 or float16 with any strides, taken in the order of an index where there is one.
struct StridedRows {
  char* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
  DType dtype = DType::kFloat32;
  const int64_t* order = nullptr;

  int64_t index(int64_t row) const { return order == nullptr ? row : order[row]; }
  char* row(int64_t row) const { return data + index(row) * row_stride * dtype_size_bytes(dtype); }
  // The first `width` elements of a row as f32: where they lie, or in `buffer`.
  const float* load(int64_t at, int64_t width, float* buffer) const {
    if (dtype == DType::kFloat32 && column_stride == 1) return reinterpret_cast<const float*>(row(at));
    load_row_as_f32(dtype, row(at), column_stride, width, buffer);
    return buffer;
  }
  void store(const float* source, int64_t width, int64_t at) const {
    store_row_from_f32(source, width, dtype, row(at), column_stride);
  }
};

// `count` rows of `keys` to the rows from `packed` on, a multiple of 16, of panels that begin at `panels`; the last
// panel is filled up with zeros.
void pack_attention_keys(const StridedRows& keys, int64_t head_dim, int64_t count, int64_t packed, float* panels);
// `padded_keys` is the number of rows of each panel.
void pack_attention_values(const StridedRows& values, int64_t value_dim, int64_t count, int64_t packed,
                           int64_t padded_keys, float* panels);

// A run of keys: rows [packed, packed + count) of the panels, packed a multiple of 16, at the positions [first, ...).
struct KeySpan {
  int64_t packed = 0;
  int64_t first = 0;
  int64_t count = 0;
};

struct AttentionBlock {
  StridedRows query;  // row 0 is the block's first query
  StridedRows output;
  float* log_sum_exp = nullptr;  // null: not wanted
  int64_t log_sum_exp_stride = 0;
  const float* packed_keys = nullptr;
  const float* packed_values = nullptr;
  int64_t padded_keys = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  int64_t num_rows = 0;  // at most kAttentionQueryBlock
  std::span<const KeySpan> spans;
  // Row r sees the keys at positions below causal_limit + r, or all without causal.
  bool causal = false;
  int64_t causal_limit = 0;
  float scale = 1;
  MaskRows mask;  // key positions are those of the spans

  // How many keys of the span row r sees.
  int64_t visible(int64_t row, const KeySpan& span) const {
    return causal ? std::clamp<int64_t>(causal_limit + row - span.first, 0, span.count) : span.count;
  }
};

// Floats that attend_block needs, 64-byte aligned.
int64_t attention_workspace_floats(int64_t head_dim, int64_t value_dim);
void attend_block(const AttentionBlock& block, float* workspace);

}  // namespace qx::kernels
