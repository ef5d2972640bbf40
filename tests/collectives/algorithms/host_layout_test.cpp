#include "quincunx/collectives/algorithms/host_layout.h"

#include <gtest/gtest.h>

namespace qx::collectives {
namespace {

TEST(HostLayout, GroupsTheRanksOfEachHost) {
  const std::vector<uint32_t> hosts = {7, 9, 7, 0, 9, 7, 0};
  const HostLayout layout(hosts);
  EXPECT_EQ(layout.num_hosts(), 4);
  EXPECT_EQ(layout.ranks_of(0), (std::vector<int>{0, 2, 5}));
  EXPECT_EQ(layout.ranks_of(1), (std::vector<int>{1, 4}));
  // Ranks that share no memory are alone, though both say 0.
  EXPECT_EQ(layout.ranks_of(2), (std::vector<int>{3}));
  EXPECT_EQ(layout.ranks_of(3), (std::vector<int>{6}));
  EXPECT_EQ(layout.index_of(5), 2);
  EXPECT_EQ(layout.host_of(4), 1);
  EXPECT_EQ(layout.num_carriers(), 1);
}

TEST(HostLayout, HasAsManyCarriersAsTheSmallestHostHasRanks) {
  const std::vector<uint32_t> hosts = {1, 1, 1, 2, 2, 1, 1};
  const HostLayout layout(hosts);
  EXPECT_EQ(layout.num_carriers(), 2);
  EXPECT_EQ(layout.carrier(1, 1), 4);
  EXPECT_EQ(layout.column_of(5), 1);
  EXPECT_EQ(layout.column_of(6), 0);
}

TEST(HostLayout, OneHostHoldsAllWhereNothingElseIsKnown) {
  EXPECT_EQ(HostLayout(5).num_hosts(), 1);
  EXPECT_EQ(HostLayout(1).num_ranks(), 1);
}

}  // namespace
}  // namespace qx::collectives
