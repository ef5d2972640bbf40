// The tree through which the calls of a group are gathered. Within a host it is binomial below the host's first rank;
// those are a binomial tree too, so that between two hosts at most one link is used and no rank has more links than the
// two logarithms and one.
#pragma once

#include <vector>

#include "quincunx/collectives/algorithms/host_layout.h"

namespace qx::collectives {

class CallTree {
 public:
  CallTree(const HostLayout& layout, int rank);

  int parent() const { return parent_; }  // -1 for rank 0
  const std::vector<int>& children() const { return children_; }
  bool is_neighbour(int rank) const;
  // A child and the ranks below it, in the order in which it hands them on: the child first, then those below its own
  // children, one child after the other.
  const std::vector<int>& below(int child) const;
  // This rank and all below it, in the same order.
  std::vector<int> subtree() const;
  // The child that `rank` is or is below; -1 where it is below none.
  int child_towards(int rank) const { return child_of_[static_cast<size_t>(rank)]; }

 private:
  int rank_;
  int parent_ = -1;
  std::vector<int> children_;
  std::vector<std::vector<int>> below_;  // by child
  std::vector<int> child_of_;            // by rank
};

}  // namespace qx::collectives
