#include "quincunx/collectives/algorithms/call_tree.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace qx::collectives {
namespace {

std::vector<HostLayout> layouts() {
  std::vector<HostLayout> layouts;
  for (int size = 1; size <= 70; ++size) layouts.emplace_back(size);
  for (const uint32_t num_hosts : {1u, 2u, 3u, 5u, 64u}) {
    std::vector<uint32_t> in_turn, in_blocks;
    for (uint32_t r = 0; r < 64; ++r) {
      in_turn.push_back(1 + r % num_hosts);
      in_blocks.push_back(1 + r * num_hosts / 64);
    }
    layouts.emplace_back(in_turn);
    layouts.emplace_back(in_blocks);
  }
  return layouts;
}

TEST(CallTree, ChildrenAndParentsAgreeAndSubtreesHoldEachRankOnce) {
  for (const HostLayout& layout : layouts()) {
    for (int rank = 0; rank < layout.num_ranks(); ++rank) {
      const CallTree tree(layout, rank);
      std::vector<int> below = {rank};
      for (const int child : tree.children()) {
        const CallTree its(layout, child);
        EXPECT_EQ(its.parent(), rank);
        EXPECT_EQ(its.subtree(), tree.below(child)) << "another order than the child's own";
        for (const int each : tree.below(child)) EXPECT_EQ(tree.child_towards(each), child);
        below.insert(below.end(), tree.below(child).begin(), tree.below(child).end());
        EXPECT_TRUE(tree.is_neighbour(child));
      }
      EXPECT_EQ(tree.subtree(), below);
      EXPECT_EQ(tree.child_towards(rank), -1);
    }
    std::vector<int> all = CallTree(layout, 0).subtree();
    std::sort(all.begin(), all.end());
    for (int rank = 0; rank < layout.num_ranks(); ++rank) EXPECT_EQ(all[static_cast<size_t>(rank)], rank);
  }
}

TEST(CallTree, EachHostButTheFirstHasOneLinkUp) {
  for (const HostLayout& layout : layouts()) {
    int num_links = 0;
    for (int rank = 1; rank < layout.num_ranks(); ++rank) {
      num_links += layout.host_of(CallTree(layout, rank).parent()) != layout.host_of(rank);
    }
    EXPECT_EQ(num_links, layout.num_hosts() - 1);
  }
}

TEST(CallTree, NoRankHasMoreLinksThanTheLogarithm) {
  const HostLayout layout(4096);
  for (int rank = 0; rank < 4096; rank += 64) {
    EXPECT_LE(CallTree(layout, rank).children().size() + (rank > 0), 12u);
  }
}

}  // namespace
}  // namespace qx::collectives
