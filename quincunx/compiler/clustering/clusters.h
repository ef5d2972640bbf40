// Which nodes of a graph become one region: union-find along its edges, never closing a cycle.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace qx::compiler {

struct ClusterGraph {
  // For each node, in topological order, the nodes whose results it reads.
  std::vector<std::vector<int32_t>> inputs;
  // Nodes that may be in a region.
  std::vector<bool> candidate;
  // What a node's result costs to write and read again; along the dearest edges nodes are merged first.
  std::vector<int64_t> result_bytes;
};

// Whether these nodes, in increasing order, can be one region.
using AcceptCluster = std::function<bool(std::span<const int32_t>)>;

// Disjoint sets of candidates, single ones included, each sorted, in the order of their first nodes. No path leaves a
// set and comes back, the sets as a whole have no cycle, and no two that an edge joins could be one more under these
// rules. O(n^2) steps and O(edges) calls of `accept` a sweep; sweeps repeat until nothing merges.
std::vector<std::vector<int32_t>> findClusters(const ClusterGraph& graph, const AcceptCluster& accept);

}  // namespace qx::compiler
