// Heads whose keys and values are packed a group at a time, so that the copy of a group stays in a last-level cache.
#pragma once

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

inline constexpr int64_t kMaxPackedAttentionBytes = int64_t{32} << 20;

// Calls work(first head, number of heads, memory for `head_floats` of each, 64-byte aligned) for the key/value heads
// of all batch items, in order; as many at a time as fit kMaxPackedAttentionBytes, one at least.
inline Status for_packed_heads(const TensorView& key, const TensorView& value, int64_t head_floats,
                               const std::function<void(int64_t, int64_t, float*)>& work) {
  const int64_t num_heads = key.size(0) * key.size(1);
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
