// Which way calls and messages take, by the number of ranks and of bytes. docs/mccl.md has the measurements.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "quincunx/collectives/algorithms/host_layout.h"
#include "quincunx/collectives/call.h"

namespace qx::collectives {

inline constexpr int64_t kNeverBytes = std::numeric_limits<int64_t>::max();

// Groups larger than this gather their calls through a tree, whatever their hosts.
int largest_flat_group();

// Whether a collective whose largest message has so many bytes goes in two levels: within hosts and between them. Small
// ones travel with the calls. `with_tree`: their calls were gathered, and not all inputs could go with them.
bool takes_two_levels(const Call& call, const HostLayout& layout, bool with_tree);
// Whether a group gathers its calls through a tree.
bool gathers_calls(const HostLayout& layout);

// From how many bytes for one peer on the peer copies them out of this process by the system; fewer go through a ring,
// and so does all that is reduced. `num_ranks`: of the group.
int64_t peer_memory_bytes(Operation operation, int num_ranks);

// What benchmarks and tests set to take a certain way: on all ranks alike, between operations. A group keeps its way of
// calls, but its operations must be started under the same setting. Negative: as measured.
struct ForcedWays {
  std::atomic<int64_t> peer_memory_bytes = -1;
  std::atomic<int> largest_flat_group = -1;
};
ForcedWays& forced_ways();

}  // namespace qx::collectives
