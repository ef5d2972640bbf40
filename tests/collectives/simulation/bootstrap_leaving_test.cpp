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

// All but three leave together, as Mesh does it: the top last.
void leave_three(int num_ranks, int ranks_per_host, int num_roots, uint64_t seed) {
  const auto simulation = run_ready(num_ranks, ranks_per_host, num_roots, seed);
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<int> ranks(static_cast<size_t>(num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), random);
  const std::vector<int> stayers(ranks.end() - 3, ranks.end());
  const bool has_new_top = seed % 2 == 0 && std::find(stayers.begin(), stayers.end(), 0) == stayers.end();
  if (has_new_top) leave(*simulation, 0);
  int top = -1;
  const auto leave_at_once = [&](int rank) {
    simulation->with_node(rank, [](TreeNode& node, TreeNode::Time now) { node.leave(now); });
    simulation->kill(rank);
  };
  for (auto rank = ranks.begin(); rank + 3 != ranks.end(); ++rank) {
    if (has_new_top && *rank == 0) continue;
    bool is_top = false;
    simulation->with_node(*rank, [&](TreeNode& node, TreeNode::Time) { is_top = node.is_top(); });
    if (is_top)
      top = *rank;
    else
      leave_at_once(*rank);
  }
  simulation->run_for(0.7);
  if (top >= 0) leave_at_once(top);
  simulation->run_for(1);
  int num_found = 0;
  simulation->set_listener([&](int, TreeAction& action) {
    num_found += action.kind == TreeAction::Kind::kResolved && action.status.ok() ? 1 : 0;
  });
  for (const int asker : stayers) {
    simulation->with_node(asker, [&](TreeNode& node, TreeNode::Time now) {
      for (const int other : stayers) {
        if (other != asker) node.resolve(other, now);
      }
    });
  }
  simulation->run_for(2);
  EXPECT_EQ(num_found, 6) << ranks_per_host << " a host, " << num_roots << " roots, seed " << seed;
  for (const int rank : stayers) EXPECT_TRUE(simulation->outcome(rank).died.empty());
}

TEST(BootstrapLeaving, AFewFindEachOtherAfterAllOthersHaveLeftAtOnce) {
  for (const int ranks_per_host : {1, 4, 20}) {
    for (const int num_roots : {1, 3}) {
      for (uint64_t seed = 1; seed <= 10; ++seed) leave_three(60, ranks_per_host, num_roots, seed);
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
