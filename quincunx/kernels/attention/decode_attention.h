// Attention of the newest tokens of each sequence over its key-value cache, which is read where it lies.
#pragma once

#include <optional>
#include <span>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

struct DecodeAttentionOptions {
  std::optional<float> scale = std::nullopt;  // absent: 1 / sqrt(D); finite
  // One a batch item: the keys that its cache holds, the newest tokens included. Memory after them is not read. Empty:
  // all C of a contiguous cache; a paged one needs them. Of L queries the last one sees all keys, each one before it
  // one key less: query i the keys j < length - L + 1 + i.
  std::span<const int64_t> key_lengths = {};
  // Filled with log(sum(exp(scaled scores))) a query where present: float32 [B, H, L], any strides.
  std::optional<TensorView> log_sum_exp = std::nullopt;
};

// output = softmax(scale * query keys^T) values.
//   query  [B, H, L, D]      keys    [B, H_kv, C, D]
//   output [B, H, L, D_v]    values  [B, H_kv, C, D_v]
// float32, bfloat16 or float16 with any strides; values have the dtype of keys and output that of query, which may be
// another one. 1 <= D, D_v <= 256; H is a multiple of H_kv, and query head h reads head h / (H / H_kv) of the cache. A
// query that sees no key gives zeros and a log_sum_exp of -inf. Output must not overlap the inputs.
// Computed in f32. Each head's cache is read once, in runs of kDecodeSplitKeys keys that are spread over the threads
// and joined in their order: the same bits for any number of threads, and for a contiguous and a paged cache. Rows of
// the cache (the last dimension) must be contiguous to be read at the speed of memory; others are copied row by row.
// Meant for few queries, 1 to about 16: attention() is faster for more. Thread-safe.
//   decode_attention(q, cache_k, cache_v, {.key_lengths = lengths}, out)
Status decode_attention(const TensorView& query, const TensorView& keys, const TensorView& values,
                        const DecodeAttentionOptions& options, const TensorView& output);

// A cache of pages of P tokens, any number P. Token j of batch item b stands in row j % P of page
// block_table[b, j / P].
struct PagedCache {
  TensorView keys;         // [pages, H_kv, P, D], any strides: a [pages, P, H_kv, D] cache is a transposed view
  TensorView values;       // [pages, H_kv, P, D_v]
  TensorView block_table;  // int32 or int64 [B, M], any strides; entries after a sequence's last page are not read
};

// The same over a paged cache; options.key_lengths has a length for each batch item.
//   paged_decode_attention(q, {key_pages, value_pages, table}, {.key_lengths = lengths}, out)
Status paged_decode_attention(const TensorView& query, const PagedCache& cache, const DecodeAttentionOptions& options,
                              const TensorView& output);

inline constexpr int64_t kDecodeSplitKeys = 256;

}  // namespace qx::kernels
