#include "quincunx/collectives/algorithms/ways.h"

#include <algorithm>

#include "quincunx/collectives/algorithms/direct_exchange.h"
#include "quincunx/collectives/algorithms/two_levels.h"

namespace qx::collectives {
namespace {

constexpr int kLargestFlatGroup = 8;
// Between hosts each message is a packet: gathered calls are fewer from here on.
constexpr int kLargestFlatGroupOfHosts = 4;

struct PeerMemoryLimit {
  Operation operation;
  int64_t num_bytes;
};
// One rank that fills a ring for each of the others takes as long as they together; readers are as many as there are.
// Elsewhere as many fill rings as empty them, at the same time and without the system's table of pages.
constexpr PeerMemoryLimit kPeerMemoryLimits[] = {
    {Operation::kBroadcast, 1 << 20},
    {Operation::kScatter, 2 << 20},
};
constexpr int kFewestReadersOfMemory = 2;

}  // namespace

ForcedWays& forced_ways() {
  static ForcedWays ways;
  return ways;
}

int largest_flat_group() {
  const int forced = forced_ways().largest_flat_group.load(std::memory_order_relaxed);
  return forced >= 0 ? forced : kLargestFlatGroup;
}

bool gathers_calls(const HostLayout& layout) {
  if (layout.num_ranks() > largest_flat_group()) return true;
  const bool shares_hosts = layout.num_hosts() < layout.num_ranks();
  return layout.num_hosts() > 1 && shares_hosts && layout.num_ranks() > kLargestFlatGroupOfHosts;
}

bool takes_two_levels(const Call& call, const HostLayout& layout, bool with_tree) {
  if (layout.num_hosts() == 1 || !has_two_levels(call.operation)) return false;
  const bool shares_hosts = layout.num_hosts() < layout.num_ranks();
  if (!shares_hosts && layout.num_ranks() <= largest_flat_group()) return false;
  int64_t largest = call.count;
  for (const int64_t count : call.counts) largest = std::max(largest, count);
  return with_tree || largest * dtype_size_bytes(call.dtype) > kInlineBytes;
}

int64_t peer_memory_bytes(Operation operation, int num_ranks) {
  if (reduces(operation)) return kNeverBytes;
  const int64_t forced = forced_ways().peer_memory_bytes.load(std::memory_order_relaxed);
  if (forced >= 0) return forced;
  if (num_ranks - 1 < kFewestReadersOfMemory) return kNeverBytes;
  for (const PeerMemoryLimit& limit : kPeerMemoryLimits) {
    if (limit.operation == operation) return limit.num_bytes;
  }
  return kNeverBytes;
}

}  // namespace qx::collectives
