// The tree through which the calls of a large group are gathered: binomial, so that each rank has as many links as its
// number has trailing zeros, and one more. The ranks below a rank follow it without gaps: whatever is gathered is in
// the order of ranks.
#pragma once

#include <bit>
#include <vector>

namespace qx::collectives {

// -1 for rank 0.
inline int tree_parent(int rank) { return rank == 0 ? -1 : rank & (rank - 1); }

// One past the last rank below `rank`.
inline int tree_end(int rank, int size) {
  if (rank == 0) return size;
  const int end = rank + (rank & -rank);
  return end < size ? end : size;
}

// In the order of ranks.
inline std::vector<int> tree_children(int rank, int size) {
  std::vector<int> children;
  for (int step = 1; rank + step < tree_end(rank, size); step *= 2) children.push_back(rank + step);
  return children;
}

}  // namespace qx::collectives
