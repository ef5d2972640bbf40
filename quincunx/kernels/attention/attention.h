// Dense scaled dot product attention, forward: of a batch, or of sequences packed one after another.
#pragma once

#include <optional>
#include <span>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

struct AttentionOptions {
  std::optional<float> scale = std::nullopt;  // absent: 1 / sqrt(D); finite
  // Query i sees the keys j <= i + (S_kv - S_q): the last query sees all of them. For S_q == S_kv that is PyTorch's
  // is_causal; for others it is its CausalVariant.LOWER_RIGHT, what decoding with a cache needs (is_causal itself
  // aligns the first query with the first key).
  bool causal = false;
  // One length a batch item: keys at and after it are padding and their memory is not read. Empty: all keys count.
  // It does not move the causal diagonal.
  std::span<const int64_t> key_lengths = {};
  // Which keys a query sees, beside the above: bool (false hides) or float32 (added to the scaled scores; -inf hides),
  // [B, H, S_q, S_kv], any strides. A hidden score is -inf whatever it was; key blocks that no query of a block sees
  // are skipped. Nothing is NaN because of it.
  std::optional<TensorView> attn_mask = std::nullopt;
  // Filled with log(sum(exp(scaled scores))) a query where present: float32 [B, H, S_q], any strides.
  std::optional<TensorView> log_sum_exp = std::nullopt;
};

// output = softmax(scale * query key^T + mask) value.
//   query  [B, H, S_q, D]       key    [B, H_kv, S_kv, D]
//   output [B, H, S_q, D_v]     value  [B, H_kv, S_kv, D_v]
// float32, bfloat16 or float16, all alike and computed in f32; any strides (so [B, S, H, D] tensors are handed over as
// transposed views); 1 <= D, D_v <= 256. H is a multiple of H_kv, and query head h reads key head h / (H / H_kv). A
// query that sees no key, or only scores of -inf, gives zeros and a log_sum_exp of -inf. NaN in a visible score or
// value gives NaN; a masked value must be finite unless it is padding. Output must not overlap the inputs. Online
// softmax over blocks of 128 keys in f32: the same bits for any number of threads. Memory: a packed f32 copy of the
// keys and values of as many heads as fit 32 MiB, one at least. Thread-safe.
//   attention(q, k, v, {.causal = true}, out)
Status attention(const TensorView& query, const TensorView& key, const TensorView& value,
                 const AttentionOptions& options, const TensorView& output);

struct VariableLengthOptions {
  std::optional<float> scale = std::nullopt;
  bool causal = false;  // within each sequence, as in AttentionOptions
  // Sequence i has the queries [query_starts[i], query_starts[i + 1]) and the keys [key_starts[i], key_starts[i + 1]):
  // numbers from 0 to the length of the tensors that do not fall. Sequences may be empty.
  std::span<const int64_t> query_starts = {};
  std::span<const int64_t> key_starts = {};
  std::optional<TensorView> log_sum_exp = std::nullopt;  // float32 [H, S_q]
};

// The same for sequences that stand one after another without padding: query [S_q, H, D], key [S_kv, H_kv, D], value
// [S_kv, H_kv, D_v], output [S_q, H, D_v]. Each query sees the keys of its own sequence; each sequence has the bits
// that it has alone. Thread-safe.
Status variable_length_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                                 const VariableLengthOptions& options, const TensorView& output);

inline constexpr int64_t kMaxAttentionHeadDim = 256;

}  // namespace qx::kernels
