#include "quincunx/collectives/algorithms/reducer.h"

#include <algorithm>
#include <cstring>

#include "quincunx/collectives/algorithms/partial_reduction.h"
#include "quincunx/kernels/reduce/reduce.h"

namespace qx::collectives {

static_assert(static_cast<int>(ReduceOp::kPreMulSum) == static_cast<int>(kernels::ReduceKind::kPreMulSum));

Reducer::Reducer(const Reduction& reduction, const Slice& slice, int rank, int world_size)
    : reduction_(reduction),
      slice_(slice),
      rank_(rank),
      world_size_(world_size),
      element_bytes_(dtype_size_bytes(slice.dtype)),
      window_bytes_(std::min(kReduceWindowBytes, slice.size_bytes)),
      received_(static_cast<size_t>(world_size), 0),
      staging_(world_size > 2 ? static_cast<size_t>(world_size) : 0),
      in_place_(static_cast<size_t>(world_size), nullptr) {
  received_[static_cast<size_t>(rank)] = slice.size_bytes;
}

int64_t Reducer::receive(int peer, Link& link, int64_t limit) {
  if (world_size_ == 2) {
    const std::span<const std::byte> unread = link.peek(static_cast<size_t>(element_bytes_));
    const int64_t taken = reduce_from(peer, unread.first(std::min<size_t>(unread.size(), static_cast<size_t>(limit))));
    link.consume(static_cast<size_t>(taken));
    return taken;
  }
  auto& staging = staging_[static_cast<size_t>(peer)];
  int64_t& received = received_[static_cast<size_t>(peer)];
  if (staging.empty()) staging.resize(static_cast<size_t>(window_bytes_));
  const int64_t offset = received % window_bytes_;
  const int64_t room = std::min(window_bytes_ - offset, window_bytes_ - (received - reduced_));
  const auto wanted = static_cast<size_t>(std::min(limit, room));
  const auto taken = static_cast<int64_t>(link.read(staging.data() + offset, wanted));
  received += taken;
  if (taken > 0) advance();
  return taken;
}

void Reducer::accept(int peer, std::span<const std::byte> contribution) {
  if (world_size_ == 2) {
    reduce_from(peer, contribution);
    return;
  }
  staging_[static_cast<size_t>(peer)].assign(contribution.begin(), contribution.end());
  received_[static_cast<size_t>(peer)] = slice_.size_bytes;
}

int64_t Reducer::reduce_from(int peer, std::span<const std::byte> contribution) {
  const int64_t taken = static_cast<int64_t>(contribution.size()) / element_bytes_ * element_bytes_;
  if (taken == 0) return 0;
  const void* sources[2];
  sources[rank_] = slice_.own + reduced_;
  sources[peer] = contribution.data();
  reduce_block(sources, taken);
  received_[static_cast<size_t>(peer)] += taken;
  return taken;
}

void Reducer::read_from(int peer, const std::byte* data) {
  in_place_[static_cast<size_t>(peer)] = data;
  if (world_size_ > 2) received_[static_cast<size_t>(peer)] = slice_.size_bytes;
}

void Reducer::advance(int64_t limit) {
  if (world_size_ == 2) {
    const int peer = 1 - rank_;
    const std::byte* data = in_place_[static_cast<size_t>(peer)];
    if (data == nullptr) return;
    reduce_from(peer, {data + reduced_, static_cast<size_t>(std::min(limit, slice_.size_bytes - reduced_))});
    return;
  }
  std::vector<const void*> sources(static_cast<size_t>(world_size_));
  int64_t ready = std::min(limit, *std::min_element(received_.begin(), received_.end()) - reduced_);
  ready -= ready % element_bytes_;
  while (ready > 0) {
    const int64_t offset = reduced_ % window_bytes_;
    const int64_t num_bytes = world_size_ == 1 ? ready : std::min(ready, window_bytes_ - offset);
    for (int r = 0; r < world_size_; ++r) {
      const auto index = static_cast<size_t>(r);
      if (r == rank_)
        sources[index] = slice_.own + reduced_;
      else
        sources[index] = in_place_[index] != nullptr ? in_place_[index] + reduced_ : staging_[index].data() + offset;
    }
    reduce_block(sources, num_bytes);
    ready -= num_bytes;
  }
}

// What kernels::reduce does within its registers, a block at a time, without the last rounding.
void Reducer::reduce_widened(std::span<const void* const> sources, int64_t count) {
  constexpr int64_t kBlock = 1024;
  float values[kBlock];
  const auto kind = static_cast<kernels::ReduceKind>(reduction_.op);
  auto* output = reinterpret_cast<float*>(slice_.output) + reduced_ / element_bytes_;
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t size = std::min(kBlock, count - i);
    for (size_t s = 0; s < sources.size(); ++s) {
      widen(slice_.dtype, static_cast<const std::byte*>(sources[s]) + i * element_bytes_, size, values);
      const void* scaled[] = {values};
      if (kind == kernels::ReduceKind::kPreMulSum)
        kernels::reduce(kind, DType::kFloat32, scaled, size, values, reduction_.pre_multiplier);
      const void* pair[] = {output + i, values};
      if (s == 0)
        std::memcpy(output + i, values, static_cast<size_t>(size) * sizeof(float));
      else
        kernels::reduce(kind == kernels::ReduceKind::kProduct ? kind : kernels::ReduceKind::kSum, DType::kFloat32, pair,
                        size, output + i);
    }
  }
}

void Reducer::reduce_block(std::span<const void* const> sources, int64_t num_bytes) {
  if (slice_.widens) {
    reduce_widened(sources, num_bytes / element_bytes_);
    reduced_ += num_bytes;
    return;
  }
  kernels::reduce(static_cast<kernels::ReduceKind>(reduction_.op), slice_.dtype, sources, num_bytes / element_bytes_,
                  slice_.output + reduced_, reduction_.pre_multiplier);
  reduced_ += num_bytes;
}

}  // namespace qx::collectives
