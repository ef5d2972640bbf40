// Faults are injected, and what every rank says is compared with what was injected.
#include <gtest/gtest.h>

#include <random>

#include "quincunx/collectives/simulation/bootstrap_simulation.h"

namespace qx::collectives {
namespace {

constexpr double kTimeout = 8;

struct Shape {
  int num_ranks;
  int ranks_per_host;
  int num_roots;
};
constexpr Shape kShapes[] = {{2, 1, 1}, {5, 5, 1}, {24, 6, 1}, {24, 6, 3}, {60, 1, 2}, {70, 11, 4}};

std::unique_ptr<BootstrapSimulation> run(const Shape& shape, const std::vector<std::string>& faults, uint64_t seed) {
  BootstrapScenario scenario;
  scenario.num_ranks = shape.num_ranks;
  scenario.ranks_per_host = shape.ranks_per_host;
  scenario.num_roots = shape.num_roots;
  scenario.seed = seed;
  scenario.timeout_s = kTimeout;
  scenario.aftermath_s = 2;
  for (const std::string& fault : faults) scenario.faults.push_back(*parse_fault(fault));
  auto simulation = BootstrapSimulation::create(scenario);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  (*simulation)->run();
  return std::move(*simulation);
}

std::string name_of(const Shape& shape, const std::string& fault, uint64_t seed) {
  return std::to_string(shape.num_ranks) + " ranks, " + std::to_string(shape.ranks_per_host) + " a host, " +
         std::to_string(shape.num_roots) + " roots, " + fault + ", seed " + std::to_string(seed);
}

// Every rank but those of `faulty` has failed and names exactly them.
void expect_all_name(const BootstrapSimulation& simulation, int num_ranks, const RankSet& faulty,
                     const std::string& name) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (faulty.contains(rank)) continue;
    const RankOutcome& outcome = simulation.outcome(rank);
    ASSERT_GE(outcome.failed_s, 0) << name << ": rank " << rank << " has not failed";
    ASSERT_EQ(outcome.failure_ranks, faulty) << name << ": rank " << rank << ": " << outcome.failure;
    ASSERT_LE(outcome.failed_s, outcome.started_s + kTimeout + 1) << name;
    ASSERT_NE(outcome.failure.message().find(faulty.to_string()), std::string::npos) << outcome.failure;
  }
}

int some_rank(const Shape& shape, uint64_t seed) {
  return static_cast<int>(std::mt19937(static_cast<unsigned>(seed * 31 + static_cast<uint64_t>(shape.num_ranks)))() %
                          static_cast<unsigned>(shape.num_ranks));
}

TEST(BootstrapFaults, RanksThatNeverComeAreNamed) {
  for (const Shape& shape : kShapes) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const int rank = seed == 0 ? 0 : some_rank(shape, seed);
      for (const char* kind : {"@never", "@listening", "@stop:listening"}) {
        const std::string fault = std::to_string(rank) + kind;
        const auto simulation = run(shape, {fault}, seed);
        expect_all_name(*simulation, shape.num_ranks, {rank}, name_of(shape, fault, seed));
      }
    }
  }
}

TEST(BootstrapFaults, SeveralThatNeverComeAreNamedTogether) {
  std::mt19937 random(1);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Shape shape{80, 5, 2};
    RankSet faulty;
    std::vector<std::string> faults;
    while (faulty.count() < 1 + static_cast<int64_t>(seed)) {
      const int rank = static_cast<int>(random() % 80);
      if (faulty.contains(rank)) continue;
      faulty.insert(rank);
      faults.push_back(std::to_string(rank) + "@never");
    }
    expect_all_name(*run(shape, faults, seed), shape.num_ranks, faulty, "seed " + std::to_string(seed));
  }
}

TEST(BootstrapFaults, ARankThatDiesWhileRanksConnectIsNamed) {
  for (const Shape& shape : kShapes) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const int rank = seed == 0 ? 0 : some_rank(shape, seed);
      for (const char* phase : {"@greeting", "@attached"}) {
        const std::string fault = std::to_string(rank) + phase;
        const auto simulation = run(shape, {fault}, seed);
        // The last one to come may complete the job in the moment in which it dies.
        if (simulation->report().num_ready > 0) continue;
        expect_all_name(*simulation, shape.num_ranks, {rank}, name_of(shape, fault, seed));
      }
    }
  }
}

TEST(BootstrapFaults, RanksThatDieTogetherAreNamedTogether) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    BootstrapScenario scenario;
    scenario.num_ranks = 61;
    scenario.ranks_per_host = 6;
    scenario.seed = seed;
    scenario.timeout_s = kTimeout;
    scenario.faults = {*parse_fault("60@never")};  // so that the others wait
    auto simulation = BootstrapSimulation::create(scenario);
    ASSERT_TRUE(simulation.ok());
    (*simulation)->run_for(1);
    RankSet killed;
    for (int rank = 12; rank < 18; ++rank) {  // a host falls
      (*simulation)->kill(rank);
      killed.insert(rank);
    }
    (*simulation)->run();
    for (int rank = 0; rank < 60; ++rank) {
      if (killed.contains(rank)) continue;
      const RankOutcome& outcome = (*simulation)->outcome(rank);
      ASSERT_EQ(outcome.failure_ranks, killed) << "rank " << rank << ": " << outcome.failure;
      ASSERT_LT(outcome.failed_s, 3) << "long before the deadline";
    }
  }
}

// Nobody is left on the host to see the deaths of those who hung below others of it.
void expect_host_is_named(const Shape& shape, int host, uint64_t seed) {
  const auto simulation = run(shape, {}, seed);
  RankSet killed;
  for (int rank = host * shape.ranks_per_host; rank < (host + 1) * shape.ranks_per_host; ++rank) {
    simulation->kill(rank);
    killed.insert(rank);
  }
  const double killed_s = simulation->now_s();
  simulation->run_for(2.5);
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    if (killed.contains(rank)) continue;
    const RankOutcome& outcome = simulation->outcome(rank);
    ASSERT_EQ(outcome.died, killed) << name_of(shape, "host " + std::to_string(host), seed) << ": rank " << rank
                                    << " was told " << outcome.died.to_string();
    ASSERT_LT(outcome.last_died_s - killed_s, 2);
  }
}

// With host 0 falls the top, and in some runs the first of its successors.
TEST(BootstrapFaults, AHostThatFallsIsNamedAsAWhole) {
  for (const int num_roots : {1, 3}) {
    for (const int host : {0, 3, 9}) {
      for (uint64_t seed = 0; seed < 30; ++seed) expect_host_is_named({60, 6, num_roots}, host, seed);
    }
  }
}

// Deadlines of half a second leave less time to wait for a root.
TEST(BootstrapFaults, ShortDeadlinesNameTheMissingToo) {
  for (const Shape& shape : kShapes) {
    for (const int rank : {0, shape.num_ranks - 1}) {
      BootstrapScenario scenario;
      scenario.num_ranks = shape.num_ranks;
      scenario.ranks_per_host = shape.ranks_per_host;
      scenario.num_roots = shape.num_roots;
      scenario.timeout_s = 0.5;
      const std::string fault = std::to_string(rank) + "@never";
      scenario.faults = {*parse_fault(fault)};
      auto simulation = BootstrapSimulation::create(scenario);
      ASSERT_TRUE(simulation.ok());
      (*simulation)->run();
      expect_all_name(**simulation, shape.num_ranks, {rank}, name_of(shape, fault + " in 0.5 s", 1));
    }
  }
}

TEST(BootstrapFaults, ADeathAfterwardsIsSpreadInTwoSeconds) {
  for (const Shape& shape : kShapes) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const int rank = seed == 0 ? 0 : some_rank(shape, seed);
      const auto simulation = run(shape, {}, seed);
      ASSERT_EQ(simulation->report().num_ready, shape.num_ranks);
      const double killed_s = simulation->now_s();
      simulation->kill(rank);
      simulation->run_for(2);
      for (int other = 0; other < shape.num_ranks; ++other) {
        if (other == rank) continue;
        const RankOutcome& outcome = simulation->outcome(other);
        ASSERT_EQ(outcome.died, RankSet{rank}) << name_of(shape, "kill " + std::to_string(rank), seed) << ": " << other;
        ASSERT_LT(outcome.last_died_s - killed_s, 1.0);
        ASSERT_LT(outcome.failed_s, 0) << "the tree goes on without it";
      }
    }
  }
}

// As Mesh does it: when they are not needed, or after a while.
void leave_in_order(BootstrapSimulation& simulation, std::vector<int> ranks) {
  for (double waited_s = 0; !ranks.empty(); waited_s += 0.01) {
    std::erase_if(ranks, [&](int rank) {
      bool leaves = false;
      simulation.with_node(rank, [&](TreeNode& node, TreeNode::Time now) {
        leaves = !node.is_needed() || waited_s > (node.is_top() ? 1.5 : 0.8);
        if (leaves) node.leave(now);
      });
      if (leaves) simulation.kill(rank);
      return leaves;
    });
    simulation.run_for(0.01);
  }
}

// From several sides of the tree within a few milliseconds, while others leave.
TEST(BootstrapFaults, DeathsThatComeTogetherAfterwardsAreAllTold) {
  for (const Shape& shape : {Shape{24, 6, 1}, Shape{60, 1, 2}, Shape{70, 11, 4}}) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      const auto simulation = run(shape, {}, seed);
      std::mt19937 random(static_cast<unsigned>(seed));
      RankSet killed, gone;
      std::vector<int> leavers;
      while (killed.count() < 5) {
        const int victim = some_rank(shape, random());
        if (gone.contains(victim)) continue;
        gone.insert(victim);
        if (seed % 2 == 0 && random() % 2 == 0) {
          leavers.push_back(victim);
          continue;
        }
        killed.insert(victim);
        simulation->kill(victim);
        simulation->run_for(static_cast<double>(random() % 60) * 1e-4);
      }
      leave_in_order(*simulation, leavers);
      simulation->run_for(3);
      for (int rank = 0; rank < shape.num_ranks; ++rank) {
        if (gone.contains(rank)) continue;
        // Who leaves in the moment in which those above it do may be taken for dead; who stays is not.
        RankSet died = simulation->outcome(rank).died;
        for (const int leaver : leavers) died.erase(leaver);
        ASSERT_EQ(died.to_string(), killed.to_string())
            << name_of(shape, "kill " + killed.to_string(), seed) << ": rank " << rank;
      }
    }
  }
}

// The tree heals: deaths of inner nodes, leaders and roots one after another are heard by all who are left, and all of
// them still find each other's records.
TEST(BootstrapFaults, OrphansFindAnotherParent) {
  std::mt19937 random(3);
  for (const Shape& shape : {Shape{40, 8, 1}, {40, 8, 3}, {90, 1, 1}, {90, 1, 2}}) {
    const auto simulation = run(shape, {}, 5);
    RankSet killed;
    for (const int first : {0, static_cast<int>(random() % 40)}) {
      if (!killed.contains(first)) simulation->kill(first);
      killed.insert(first);
      simulation->run_for(2);
    }
    for (int i = 0; i < 8; ++i) {
      const int victim = static_cast<int>(random() % static_cast<unsigned>(shape.num_ranks));
      if (!killed.contains(victim)) simulation->kill(victim);
      killed.insert(victim);
      simulation->run_for(2);
    }
    std::map<std::pair<int, int>, Status> resolved;
    simulation->set_listener([&](int rank, TreeAction& action) {
      if (action.kind == TreeAction::Kind::kResolved) resolved[{rank, action.rank}] = action.status;
    });
    std::vector<int> alive;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
      if (killed.contains(rank)) continue;
      alive.push_back(rank);
      ASSERT_EQ(simulation->outcome(rank).died, killed) << shape.num_ranks << " ranks, rank " << rank;
    }
    for (const int asker : alive) {
      simulation->with_node(asker, [&](TreeNode& node, TreeNode::Time now) {
        for (const int target : alive) node.resolve(target, now);
        node.resolve(killed.first(), now);
      });
    }
    simulation->run_for(3);
    for (const int asker : alive) {
      for (const int target : alive) {
        const auto found = resolved.find({asker, target});
        ASSERT_NE(found, resolved.end()) << asker << " has not found " << target << " of " << shape.num_ranks;
        ASSERT_TRUE(found->second.ok()) << found->second;
      }
      ASSERT_EQ((resolved[{asker, killed.first()}].code()), StatusCode::kUnavailable);
    }
  }
}

TEST(BootstrapFaults, ALateRootIsWaitedFor) {
  for (const Shape& shape : kShapes) {
    const auto simulation = run(shape, {"0@late:5"}, 1);
    const auto report = simulation->report();
    ASSERT_EQ(report.num_ready, shape.num_ranks) << name_of(shape, "late root", 1);
    ASSERT_LT(report.ready_s, 5 + 0.05 + 1) << "ready soon after it has come";
    for (int rank = 0; rank < shape.num_ranks; ++rank) ASSERT_TRUE(simulation->outcome(rank).died.empty());
  }
}

TEST(BootstrapFaults, ARankThatIsStartedTwiceIsNamedOnAllRanks) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    // Rank 23's process claims a rank of its own host, of another, and of a leader.
    for (const int claimed : {20, 3, 8, 41}) {
      const Shape shape{48, 6, 2};
      const auto simulation = run(shape, {"23@claims:" + std::to_string(claimed)}, seed);
      for (int rank = 0; rank < shape.num_ranks; ++rank) {
        const RankOutcome& outcome = simulation->outcome(rank);
        ASSERT_EQ(outcome.failure_ranks, RankSet{claimed}) << "rank " << rank << ": " << outcome.failure;
        ASSERT_NE(outcome.failure.message().find("started twice"), std::string::npos) << outcome.failure;
        ASSERT_LT(outcome.failed_s, 1.5) << "long before the deadline";
      }
    }
  }
}

TEST(BootstrapFaults, AnotherWorldSizeIsNamedOnAllRanks) {
  const Shape shape{48, 6, 2};
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto simulation = run(shape, {"23@world:49"}, seed);
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
      const RankOutcome& outcome = simulation->outcome(rank);
      ASSERT_EQ(outcome.failure.code(), StatusCode::kInvalidArgument);
      ASSERT_TRUE(outcome.failure_ranks.contains(23)) << outcome.failure;
      ASSERT_LT(outcome.failed_s, 1.5) << "long before the deadline";
    }
  }
}

}  // namespace
}  // namespace qx::collectives
