// Ranks that leave in order: the others come together without them, and go on finding each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "quincunx/collectives/simulation/bootstrap_simulation.h"

namespace qx::collectives {
namespace {

std::unique_ptr<BootstrapSimulation> run_ready(int num_ranks, int ranks_per_host, int num_roots, uint64_t seed) {
  BootstrapScenario scenario;
  scenario.num_ranks = num_ranks;
  scenario.ranks_per_host = ranks_per_host;
  scenario.num_roots = num_roots;
  scenario.seed = seed;
  scenario.aftermath_s = 2;
  auto simulation = BootstrapSimulation::create(scenario);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  (*simulation)->run();
  EXPECT_EQ((*simulation)->report().num_ready, num_ranks);
  return std::move(*simulation);
}

// The others have a second to find another parent.
void leave(BootstrapSimulation& simulation, int rank) {
  simulation.with_node(rank, [](TreeNode& node, TreeNode::Time now) { node.leave(now); });
  simulation.kill(rank);
  simulation.run_for(1);
}

TEST(BootstrapLeaving, AGoodbyeIsNoDeath) {
  const auto simulation = run_ready(30, 5, 1, 2);
  for (const int leaver : {0, 7, 13, 14}) leave(*simulation, leaver);
  Status status;
  bool found = false;
  simulation->set_listener([&](int, TreeAction& action) {
    if (action.kind != TreeAction::Kind::kResolved) return;
    found = found || action.rank == 29;
    if (action.rank == 13) status = action.status;
  });
  simulation->with_node(3, [](TreeNode& node, TreeNode::Time now) {
    node.resolve(29, now);
    node.resolve(13, now);
  });
  simulation->run_for(2);
  EXPECT_TRUE(found) << "those who stay still find each other";
  EXPECT_EQ(status.message(), "rank 13 has left");
  for (int rank = 0; rank < 30; ++rank) EXPECT_TRUE(simulation->outcome(rank).died.empty()) << rank;
}

// The top leaves, and whoever comes after it, until two are left that are on different hosts.
void leave_two(int num_ranks, int ranks_per_host, int num_roots, uint64_t seed) {
  const auto simulation = run_ready(num_ranks, ranks_per_host, num_roots, seed);
  const int target = num_ranks - 1;
  std::vector<int> leavers(static_cast<size_t>(num_ranks - 2));
  std::iota(leavers.begin(), leavers.end(), 1);
  std::shuffle(leavers.begin(), leavers.end(), std::mt19937(static_cast<unsigned>(seed)));
  const auto asker = std::find_if(leavers.begin(), leavers.end(),
                                  [&](int rank) { return rank / ranks_per_host != target / ranks_per_host; });
  std::swap(*asker, leavers.back());
  leave(*simulation, 0);
  for (auto leaver = leavers.begin(); leaver + 1 != leavers.end(); ++leaver) leave(*simulation, *leaver);
  Status found = not_found("nothing was heard of it");
  simulation->set_listener([&](int, TreeAction& action) {
    if (action.kind == TreeAction::Kind::kResolved && action.rank == target) found = action.status;
  });
  simulation->with_node(leavers.back(), [&](TreeNode& node, TreeNode::Time now) { node.resolve(target, now); });
  simulation->run_for(2);
  EXPECT_TRUE(found.ok()) << found << ": rank " << leavers.back() << ", " << ranks_per_host << " a host, " << num_roots
                          << " roots, seed " << seed;
  EXPECT_TRUE(simulation->outcome(leavers.back()).died.empty());
}

TEST(BootstrapLeaving, ThereIsATopHoweverManyHaveLeft) {
  for (const int ranks_per_host : {1, 4, 5}) {
    for (const int num_roots : {1, 3}) {
      for (uint64_t seed = 1; seed <= 5; ++seed) leave_two(20, ranks_per_host, num_roots, seed);
    }
  }
}

TEST(BootstrapLeaving, TheOthersComeTogetherWithoutThoseWhoHaveLeft) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    BootstrapScenario scenario;
    scenario.num_ranks = 60;
    scenario.ranks_per_host = 11;
    scenario.num_roots = 2;
    scenario.seed = seed;
    scenario.timeout_s = 20;
    scenario.faults = {*parse_fault("59@late:10")};
    auto made = BootstrapSimulation::create(scenario);
    ASSERT_TRUE(made.ok()) << made.status();
    const auto simulation = std::move(*made);
    std::mt19937 random(static_cast<unsigned>(seed));
    RankSet leavers;
    while (leavers.count() < 7) leavers.insert(1 + static_cast<int>(random() % 58));
    for (const RankSet::Range& range : leavers.ranges()) {
      for (int leaver = range.begin; leaver < range.end; ++leaver) {
        leave(*simulation, leaver);
      }
    }
    simulation->run();
    for (int rank = 0; rank < scenario.num_ranks; ++rank) {
      const RankOutcome& outcome = simulation->outcome(rank);
      if (leavers.contains(rank)) continue;
      ASSERT_GE(outcome.ready_s, 10) << "rank " << rank << ", seed " << seed << ": " << outcome.failure;
      ASSERT_TRUE(outcome.died.empty()) << "rank " << rank << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace qx::collectives
