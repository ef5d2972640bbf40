#include "quincunx/collectives/algorithms/ways.h"

namespace qx::collectives {
namespace {

constexpr int kLargestFlatGroup = 8;

struct PeerMemoryLimit {
  Operation operation;
  int64_t num_bytes;
};
// Moves in one direction, once they miss the caches. Elsewhere both ranks are busy copying, or reduce what they read:
// pieces that stay in a cache between the two copies of a ring are faster at every size.
constexpr PeerMemoryLimit kPeerMemoryLimits[] = {
    {Operation::kBroadcast, 1 << 20},
    {Operation::kGather, 2 << 20},
    {Operation::kScatter, 2 << 20},
};

}  // namespace

ForcedWays& forced_ways() {
  static ForcedWays ways;
  return ways;
}

int largest_flat_group() {
  const int forced = forced_ways().largest_flat_group.load(std::memory_order_relaxed);
  return forced >= 0 ? forced : kLargestFlatGroup;
}

int64_t peer_memory_bytes(Operation operation, uint8_t stream) {
  const int64_t forced = forced_ways().peer_memory_bytes[stream].load(std::memory_order_relaxed);
  if (forced >= 0) return forced;
  for (const PeerMemoryLimit& limit : kPeerMemoryLimits) {
    if (limit.operation == operation) return limit.num_bytes;
  }
  return kNeverBytes;
}

}  // namespace qx::collectives
