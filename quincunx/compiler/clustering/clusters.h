// Which nodes of a graph become one region: union-find along its edges, never closing a cycle.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace qx::compiler {

struct ClusterGraph {
  // For each node, in topological order, the nodes whose results it reads.
  std::vector<std::vector<int32_t>> inputs;
  // Nodes that may be in a region.
  std::vector<bool> candidate;
  // What a node's result costs to write and read again; along the dearest edges nodes are merged first.
  std::vector<int64_t> result_bytes;
  // Pairs of nodes that read the same value from outside. Where both their sets hold a reduction they are merged as if
  // an edge joined them: the gradients of a norm's operand and of its weight have no other connection.
  std::vector<std::pair<int32_t, int32_t>> siblings;
  // Nodes that reduce; empty for none.
  std::vector<bool> reduces;
};

// Whether these nodes, in increasing order, can be one region.
using AcceptCluster = std::function<bool(std::span<const int32_t>)>;

// Disjoint sets of candidates, single ones included, each sorted, in the order of their first nodes. No path leaves a
// set and comes back, the sets as a whole have no cycle, and no two that an edge joins could be one more under these
// rules. O(n^2) steps and O(edges) calls of `accept` a sweep; sweeps repeat until nothing merges.
std::vector<std::vector<int32_t>> findClusters(const ClusterGraph& graph, const AcceptCluster& accept);

}  // namespace qx::compiler
