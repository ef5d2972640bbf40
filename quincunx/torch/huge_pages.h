// Large results whose memory is new.
#pragma once

#include <sys/mman.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>

namespace qx::torch_bridge {

// Asks for huge pages under a contiguous result that nothing was written to yet. Above 32 MiB the C library maps every
// allocation anew, so that the kernel clears each page at its first write: by 4 KiB that took as long as computing
// 73 MB of Newton-Schulz (28 of 64 ms on a Zen 4 core), by 2 MiB a sixth of it. Only a wish: refusals change nothing.
inline torch::stable::Tensor with_huge_pages(torch::stable::Tensor fresh) {
  constexpr int64_t kMinBytes = int64_t{32} << 20;
  constexpr uintptr_t kPageBytes = uintptr_t{2} << 20;
  const int64_t bytes = fresh.numel() * static_cast<int64_t>(fresh.element_size());
  if (bytes < kMinBytes || !fresh.is_cpu()) return fresh;
  const auto begin = reinterpret_cast<uintptr_t>(fresh.mutable_data_ptr());
  const uintptr_t first = (begin + kPageBytes - 1) / kPageBytes * kPageBytes;
  const uintptr_t last = (begin + static_cast<uintptr_t>(bytes)) / kPageBytes * kPageBytes;
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  return fresh;
}

}  // namespace qx::torch_bridge
