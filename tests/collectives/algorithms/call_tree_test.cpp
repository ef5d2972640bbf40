#include "quincunx/collectives/algorithms/call_tree.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace qx::collectives {
namespace {

TEST(CallTree, ChildrenAndParentsAgreeAndSubtreesHaveNoGaps) {
  for (int size = 1; size <= 70; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      int next = rank + 1;
      for (const int child : tree_children(rank, size)) {
        EXPECT_EQ(tree_parent(child), rank);
        EXPECT_EQ(child, next) << "a gap below rank " << rank << " of " << size;
        next = tree_end(child, size);
      }
      EXPECT_EQ(next, tree_end(rank, size));
    }
    EXPECT_EQ(tree_end(0, size), size);
  }
}

TEST(CallTree, NoRankHasMoreLinksThanTheLogarithm) {
  for (int rank = 0; rank < 4096; ++rank) EXPECT_LE(tree_children(rank, 4096).size() + (rank > 0), 12u);
}

}  // namespace
}  // namespace qx::collectives
