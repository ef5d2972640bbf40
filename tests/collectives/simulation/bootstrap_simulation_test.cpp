#include "quincunx/collectives/simulation/bootstrap_simulation.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace qx::collectives {
namespace {

std::unique_ptr<BootstrapSimulation> run(const BootstrapScenario& scenario) {
  auto simulation = BootstrapSimulation::create(scenario);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  (*simulation)->run();
  return std::move(*simulation);
}

BootstrapScenario scenario_of(int num_ranks, int ranks_per_host, int num_roots, uint64_t seed) {
  BootstrapScenario scenario;
  scenario.num_ranks = num_ranks;
  scenario.ranks_per_host = ranks_per_host;
  scenario.num_roots = num_roots;
  scenario.seed = seed;
  scenario.timeout_s = 30;
  return scenario;
}

TEST(BootstrapSimulation, EveryShapeComesUp) {
  for (const auto& [num_ranks, ranks_per_host] :
       {std::pair(1, 1), {2, 1}, {2, 2}, {3, 2}, {9, 8}, {64, 64}, {200, 7}, {300, 1}, {513, 8}}) {
    for (const int num_roots : {0, 1, 3}) {
      if (num_roots > num_ranks) continue;
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        const auto report = run(scenario_of(num_ranks, ranks_per_host, num_roots, seed))->report();
        ASSERT_EQ(report.num_ready, num_ranks) << ranks_per_host << " a host, roots " << num_roots << ", seed " << seed
                                               << (report.failures.empty() ? "" : report.failures[0].status.message());
        ASSERT_LT(report.ready_s, 1.0);
      }
    }
  }
}

TEST(BootstrapSimulation, RaggedHostsComeUp) {
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    BootstrapScenario scenario = scenario_of(0, 1, 0, static_cast<uint64_t>(round));
    const int num_hosts = 1 + static_cast<int>(random() % 20);
    for (int host = 0; host < num_hosts; ++host) {
      scenario.host_sizes.push_back(1 + static_cast<int>(random() % 30));
      scenario.num_ranks += scenario.host_sizes.back();
    }
    EXPECT_EQ(run(scenario)->report().num_ready, scenario.num_ranks) << "round " << round;
  }
}

TEST(BootstrapSimulation, StaysWithinItsBoundsAt4096Hosts) {
  for (const int num_roots : {0, 1}) {
    const auto report = run(scenario_of(4096, 1, num_roots, 3))->report();
    EXPECT_EQ(report.num_ready, 4096);
    EXPECT_LE(report.most_connections_rank, 4);
    EXPECT_LE(report.fan_in, 128);
    EXPECT_LE(report.depth, 4);
    EXPECT_LE(report.bytes_rank, 4096);
    EXPECT_LE(report.bytes_leader, 4096);
    EXPECT_LT(report.ready_s, 1.0);
    // The leader asks a root, and then its parent at most: two each, and a few that had to wait for a late one.
    EXPECT_LE(report.num_connects, 4u * 4096);
  }
}

TEST(BootstrapSimulation, BytesARankDoNotGrowWithTheJob) {
  const auto small = run(scenario_of(1024, 8, 0, 1))->report();
  const auto large = run(scenario_of(16384, 8, 0, 1))->report();
  EXPECT_EQ(large.num_ready, 16384);
  EXPECT_LE(large.mean_bytes, 1.5 * small.mean_bytes);
  EXPECT_LE(large.depth, 4);
}

TEST(BootstrapSimulation, TheSameSeedGivesTheSameRun) {
  const auto told = [](uint64_t seed) {
    BootstrapScenario scenario = scenario_of(300, 4, 2, seed);
    scenario.network.loss = 0.02;
    const auto simulation = run(scenario);
    std::vector<double> times;
    for (int rank = 0; rank < 300; ++rank) times.push_back(simulation->outcome(rank).ready_s);
    return std::pair(times, simulation->report().num_messages);
  };
  EXPECT_EQ(told(4), told(4));
  EXPECT_NE(told(4), told(5));
}

TEST(BootstrapSimulation, LossDelaysButNamesNobody) {
  BootstrapScenario scenario = scenario_of(200, 4, 2, 1);
  scenario.network.loss = 0.05;
  const auto report = run(scenario)->report();
  EXPECT_EQ(report.num_ready, 200);
  EXPECT_GT(report.ready_s, run(scenario_of(200, 4, 2, 1))->report().ready_s);
}

TEST(BootstrapSimulation, ProgressIsKnownAtEveryRank) {
  BootstrapScenario scenario = scenario_of(60, 6, 0, 2);
  scenario.faults = {*parse_fault("17@never"), *parse_fault("31@never")};
  auto simulation = BootstrapSimulation::create(scenario);
  ASSERT_TRUE(simulation.ok());
  (*simulation)->run_for(2);
  for (int rank = 0; rank < 60; ++rank) {
    if (rank == 17 || rank == 31) continue;
    const TreeProgress progress = (*simulation)->node(rank)->progress();
    EXPECT_EQ(progress.missing, (RankSet{17, 31})) << "rank " << rank;
    EXPECT_EQ(progress.phase, TreeProgress::Phase::kAttached);
  }
}

// What is asked for and what was answered, by rank.
struct Listener {
  explicit Listener(BootstrapSimulation& simulation) {
    simulation.set_listener([this, &simulation](int rank, TreeAction& action) {
      if (action.kind == TreeAction::Kind::kResolved) resolved[rank][action.rank] = std::move(action);
      if (action.kind == TreeAction::Kind::kQuery && !silent.contains(rank)) {
        const std::byte answer{static_cast<uint8_t>(rank % 3)};
        simulation.node(rank)->answer(action.rank, action.query, std::span(&answer, 1), {});
      }
      if (action.kind == TreeAction::Kind::kAnswers) answers.push_back(std::move(action));
    });
  }
  std::map<int, std::map<int, TreeAction>> resolved;
  std::vector<TreeAction> answers;
  RankSet silent;
};

void ask_for(BootstrapSimulation& simulation, int asker, int target) {
  simulation.with_node(asker, [&](TreeNode& node, TreeNode::Time now) { node.resolve(target, now); });
}

TEST(BootstrapSimulation, EveryRankFindsTheRecordOfEveryOther) {
  constexpr int kRanks = 70;
  const auto simulation = run(scenario_of(kRanks, 6, 2, 1));
  Listener listener(*simulation);
  for (int asker = 0; asker < kRanks; ++asker) {
    for (int target = 0; target < kRanks; ++target) ask_for(*simulation, asker, target);
  }
  simulation->run_for(0.2);
  for (int asker = 0; asker < kRanks; ++asker) {
    for (int target = 0; target < kRanks; ++target) {
      const TreeAction& answer = listener.resolved[asker][target];
      ASSERT_TRUE(answer.status.ok()) << asker << " asked for " << target << ": " << answer.status;
      ASSERT_EQ(answer.bytes, std::vector<std::byte>(200, static_cast<std::byte>(target)));
    }
  }
  // The second time it is known, and nothing is sent.
  listener.resolved.clear();
  const uint64_t sent = simulation->report().num_messages;
  ask_for(*simulation, 3, 55);
  EXPECT_TRUE(listener.resolved[3].contains(55));
  EXPECT_EQ(simulation->report().num_messages, sent);
  ask_for(*simulation, 3, kRanks);
  EXPECT_EQ(listener.resolved[3][kRanks].status.code(), StatusCode::kInvalidArgument);
}

TEST(BootstrapSimulation, AQuestionReachesAllAndAnswersAreGathered) {
  constexpr int kRanks = 90;
  const auto simulation = run(scenario_of(kRanks, 6, 2, 1));
  Listener listener(*simulation);
  listener.silent = {13, 40};
  simulation->with_node(50, [](TreeNode& node, TreeNode::Time now) {
    node.query(std::as_bytes(std::span("who", 3)), std::chrono::milliseconds(500), now);
  });
  simulation->run_for(1);
  ASSERT_EQ(listener.answers.size(), 1u);
  EXPECT_EQ(listener.answers[0].ranks, listener.silent) << "those that did not answer";
  ASSERT_EQ(listener.answers[0].answers.size(), 3u);
  for (const TreeAction::Answer& answer : listener.answers[0].answers) {
    RankSet expected;
    for (int rank = static_cast<int>(answer.bytes[0]); rank < kRanks; rank += 3) expected.insert(rank);
    expected -= listener.silent;
    EXPECT_EQ(answer.ranks, expected);
  }
}

TEST(BootstrapSimulation, RefusesScenariosThatAreWrongByName) {
  const auto refused = [](auto change, const std::string& name) {
    BootstrapScenario scenario = scenario_of(8, 2, 1, 1);
    change(scenario);
    const auto simulation = BootstrapSimulation::create(scenario);
    ASSERT_EQ(simulation.status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_NE(simulation.status().message().find(name), std::string::npos) << simulation.status();
  };
  refused([](auto& s) { s.num_ranks = 0; }, "num_ranks is 0");
  refused([](auto& s) { s.ranks_per_host = 0; }, "ranks_per_host is 0");
  refused([](auto& s) { s.num_roots = 9; }, "num_roots is 9");
  refused([](auto& s) { s.host_sizes = {3, 4}; }, "host_sizes");
  refused([](auto& s) { s.timeout_s = 0; }, "timeout_s");
  refused([](auto& s) { s.network.loss = 1; }, "loss");
  refused([](auto& s) { s.record_bytes = 5000; }, "record_bytes");
  refused([](auto& s) { s.faults = {*parse_fault("8@never")}; }, "the rank of a fault is 8");
  refused([](auto& s) { s.faults = {*parse_fault("1@never"), *parse_fault("1@late:2")}; }, "two faults");
  refused([](auto& s) { s.faults = {*parse_fault("1@claims:9")}; }, "claims is 9");
  refused([](auto& s) { s.faults = {*parse_fault("3@world:3")}; }, "world size of a fault is 3");
  for (const char* text : {"", "3", "@never", "3@sometimes", "x@never", "3@late:", "3@late:-1", "3@stop:", "3@never:1x",
                           "3@listening:", "3@claims:x"}) {
    EXPECT_EQ(parse_fault(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace qx::collectives
