// The packed copies of keys and values: how one head's lies in memory, and heads packed a group at a time, so that the
// copy of a group stays in a last-level cache.
#pragma once

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "quincunx/base/status.h"
#include "quincunx/kernels/attention/attention_kernel.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// Panels of keys, then panels of values, both with room for `rows` keys, a multiple of 16.
struct PackedHead {
  int64_t rows = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;

  int64_t keys_floats() const { return rows * head_dim; }
  int64_t floats() const { return keys_floats() + rows * round_up_to_panel(value_dim); }

  // The first `count` of keys and values to the rows from `packed` on, a multiple of 16.
  void pack(const StridedRows& keys, const StridedRows& values, int64_t count, int64_t packed, float* memory) const {
    pack_attention_keys(keys, head_dim, count, packed, memory);
    pack_attention_values(values, value_dim, count, packed, rows, memory + keys_floats());
  }

  // A block of queries over the head in `memory`; the caller fills in the rest.
  AttentionBlock block(const float* memory) const {
    AttentionBlock result;
    result.packed_keys = memory;
    result.packed_values = memory + keys_floats();
    result.padded_keys = rows;
    result.head_dim = head_dim;
    result.value_dim = value_dim;
    return result;
  }
};

inline constexpr int64_t kMaxPackedAttentionBytes = int64_t{32} << 20;

// Calls work(first head, number of heads, memory for `head_floats` of each, 64-byte aligned) for `num_heads` heads in
// order; as many at a time as fit kMaxPackedAttentionBytes, one at least.
inline Status for_packed_heads(const TensorView& key, const TensorView& value, int64_t num_heads, int64_t head_floats,
                               const std::function<void(int64_t, int64_t, float*)>& work) {
  if (num_heads == 0) return ok_status();
  const int64_t fit = head_floats == 0 ? num_heads : kMaxPackedAttentionBytes / 4 / head_floats;
  const int64_t group = std::clamp<int64_t>(fit, 1, num_heads);
  const auto packed = hwy::AllocateAligned<float>(static_cast<size_t>(std::max<int64_t>(group * head_floats, 1)));
  if (packed == nullptr) {
    return resource_exhausted("key: no memory for a packed copy of " + std::to_string(group) + " heads of key " +
                              key.to_string() + " and value " + value.to_string());
  }
  for (int64_t first = 0; first < num_heads; first += group) {
    work(first, std::min(group, num_heads - first), packed.get());
  }
  return ok_status();
}

}  // namespace qx::kernels
