#include "quincunx/collectives/bootstrap/parent_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace qx::collectives {
namespace {

Endpoints endpoints_of(int rank) { return {"10.0.0." + std::to_string(rank % 250) + ":1"}; }

int depth_of(const std::map<int, int>& parents, int rank) {
  int depth = 0;
  for (; rank != 0; rank = parents.at(rank)) {
    if (++depth > 1000) return depth;  // a cycle
  }
  return depth;
}

TEST(ParentTable, FillsTheTreeLevelByLevel) {
  ParentTable table(0, 4, 3);
  std::map<int, int> parents;
  std::map<int, int> num_children;
  constexpr int kRanks = 4 + 12 + 36 + 10;
  for (int rank = 1; rank <= kRanks; ++rank) {
    const auto place = table.place(rank, 1, endpoints_of(rank), -1);
    ASSERT_GE(place.parent, 0);
    parents[rank] = place.parent;
    ++num_children[place.parent];
    if (place.parent != 0) {
      EXPECT_EQ(place.endpoints, endpoints_of(place.parent));
    }
    EXPECT_EQ(depth_of(parents, rank), rank <= 4 ? 1 : rank <= 16 ? 2 : rank <= 52 ? 3 : 4);
  }
  for (const auto& [rank, count] : num_children) EXPECT_LE(count, rank == 0 ? 4 : 3);
}

TEST(ParentTable, GivesTheRoomOfTheDeadAway) {
  ParentTable table(0, 2, 1);
  EXPECT_EQ(table.place(1, 1, endpoints_of(1), -1).parent, 0);
  EXPECT_EQ(table.place(2, 1, endpoints_of(2), -1).parent, 0);
  EXPECT_EQ(table.place(3, 1, endpoints_of(3), -1).parent, 1);
  table.remove(1);
  EXPECT_EQ(table.place(3, 1, endpoints_of(3), -1).parent, 0) << "its parent is gone, and a place at the top is free";
  EXPECT_EQ(table.place(4, 1, endpoints_of(4), -1).parent, 2);
  EXPECT_EQ(table.instance_of(1), 0u);
}

TEST(ParentTable, LeavesOutWhoCannotBeReached) {
  ParentTable table(0, 2, 2);
  table.place(1, 1, endpoints_of(1), -1);
  table.place(2, 1, endpoints_of(2), -1);
  EXPECT_EQ(table.place(3, 1, endpoints_of(3), -1).parent, 1);
  EXPECT_EQ(table.place(3, 1, endpoints_of(3), 1).parent, 2) << "rank 3 did not reach rank 1";
  EXPECT_EQ(table.place(4, 1, endpoints_of(4), -1).parent, 1);
  EXPECT_EQ(table.place(4, 1, endpoints_of(4), 1).parent, 2);
  EXPECT_NE(table.place(5, 1, endpoints_of(5), -1).parent, 1) << "two could not reach it";
}

TEST(ParentTable, HasNoPlaceWhereNobodyCanTakeAChild) {
  ParentTable table(0, 1, 0);
  EXPECT_EQ(table.place(1, 1, endpoints_of(1), -1).parent, 0);
  EXPECT_EQ(table.place(2, 1, endpoints_of(2), -1).parent, -1);
}

TEST(ParentTable, TellsTheProcessesOfARankApart) {
  ParentTable table(0, 4, 3);
  EXPECT_EQ(table.instance_of(5), 0u);
  table.place(5, 77, endpoints_of(5), -1);
  EXPECT_EQ(table.instance_of(5), 77u);
}

// Whoever dies and whoever asks again: no rank ever hangs below itself, and nobody gets too many children.
TEST(ParentTable, NeverMakesACycle) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    ParentTable table(0, 3, 2);
    std::map<int, int> parents;  // of those alive; -1: orphan
    int next_rank = 1;
    for (int step = 0; step < 200; ++step) {
      const auto place = [&](int rank) {
        parents[rank] = table.place(rank, 1, endpoints_of(rank), -1).parent;
        ASSERT_GE(parents[rank], 0);
      };
      if (random() % 3 != 0 || parents.empty()) {
        place(next_rank++);
        continue;
      }
      const auto victim = std::next(parents.begin(), static_cast<std::ptrdiff_t>(random() % parents.size()))->first;
      parents.erase(victim);
      table.remove(victim);
      std::vector<int> orphans;
      for (const auto& [rank, parent] : parents) {
        if (parent == victim) orphans.push_back(rank);
      }
      std::shuffle(orphans.begin(), orphans.end(), random);
      for (const int orphan : orphans) place(orphan);
      std::map<int, int> num_children;
      for (const auto& [rank, parent] : parents) {
        ASSERT_LT(depth_of(parents, rank), 1000) << "rank " << rank << " hangs below itself";
        ++num_children[parent];
      }
      for (const auto& [rank, count] : num_children) ASSERT_LE(count, rank == 0 ? 3 : 2);
    }
  }
}

}  // namespace
}  // namespace qx::collectives
