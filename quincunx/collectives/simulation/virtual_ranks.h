// Thousands of ranks of the bootstrap in one process, over real sockets on loopback: what a simulated job is compared
// with. Each virtual rank has the node, driver and listener of a real one, and shares nothing with the others but the
// threads that serve them.
#pragma once

#include <chrono>
#include <cstdint>

#include "quincunx/base/status.h"

namespace qx::collectives {

struct VirtualRanksOptions {
  int num_ranks = 1;
  // Ranks of a host meet over abstract unix sockets, hosts over TCP.
  int ranks_per_host = 1;
  int num_roots = 0;  // 0: one for each 128 hosts
  int num_threads = 2;
  std::chrono::milliseconds timeout{30'000};
};

struct VirtualRanksReport {
  double ready_s = 0;      // from before the first socket until the last rank is ready
  double processor_s = 0;  // of the process in that time
  int depth = 0;
  int most_connections_rank = 0;  // of a rank that is no root, in the tree
  int fan_in = 0;
  int64_t bytes_rank = 0;  // most that a rank that is no root has received
  double mean_bytes = 0;
  uint64_t num_connects = 0;
  uint64_t num_messages = 0;
};

// kInvalidArgument, kResourceExhausted where the limit of open files is too low (it needs four a rank), or the reason
// for which a rank has failed.
Result<VirtualRanksReport> run_virtual_ranks(const VirtualRanksOptions& options);

}  // namespace qx::collectives
