// When results are written past the caches.
#pragma once

#include <cstdint>

#include "quincunx/tensor/tensor_view.h"

namespace qx::kernels {

// A result of this size, read back by whoever comes next, has left the caches of most machines in part. Not taken from
// the system: a virtual machine may name the caches of its whole host.
inline constexpr int64_t kStreamedBytes = int64_t{32} << 20;
// Rows that are written past the caches begin at multiples of this, the longest vector.
inline constexpr int64_t kStreamedAlignmentBytes = 64;

// Whether the rows of `output` are written past the caches; `flat` says that it is one row, being contiguous. Never
// where the result replaces an input: its lines are cached already. After its last row a thread calls
// hwy::FlushStream(), so that others see them in order.
inline bool writes_past_caches(const TensorView& output, bool in_place, bool flat = false) {
  if (in_place || output.size_bytes() < kStreamedBytes) return false;
  if (reinterpret_cast<uintptr_t>(output.data()) % kStreamedAlignmentBytes != 0) return false;
  if (flat) return true;
  if (output.num_dims() == 0 || output.stride(-1) != 1) return false;
  for (int i = 0; i + 1 < output.num_dims(); ++i) {
    const int64_t step_bytes = output.stride(i) * dtype_size_bytes(output.dtype());
    if (output.size(i) > 1 && step_bytes % kStreamedAlignmentBytes != 0) return false;
  }
  return true;
}

// How many bytes ahead a kernel fetches what it reads, `bytes_ahead` of an input that is larger than the caches, else
// 0: the rows that come next travel while those at hand are computed.
inline int64_t fetched_ahead(const TensorView& input, int64_t bytes_ahead) {
  return input.size_bytes() < kStreamedBytes ? 0 : bytes_ahead;
}

}  // namespace qx::kernels
