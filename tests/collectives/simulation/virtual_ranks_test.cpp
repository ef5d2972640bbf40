#include "quincunx/collectives/simulation/virtual_ranks.h"

#include <gtest/gtest.h>

#include "quincunx/collectives/simulation/bootstrap_simulation.h"

namespace qx::collectives {
namespace {

VirtualRanksReport connect(int num_ranks, int ranks_per_host, int num_roots) {
  VirtualRanksOptions options;
  options.num_ranks = num_ranks;
  options.ranks_per_host = ranks_per_host;
  options.num_roots = num_roots;
  options.num_threads = std::min(2, num_ranks);
  const auto report = run_virtual_ranks(options);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : VirtualRanksReport{};
}

TEST(VirtualRanks, ComeUpOverRealSockets) {
  for (const auto& [num_ranks, ranks_per_host, num_roots] :
       {std::tuple(1, 1, 0), {2, 1, 0}, {2, 2, 1}, {50, 1, 1}, {50, 7, 0}, {120, 1, 3}, {120, 16, 2}}) {
    const VirtualRanksReport report = connect(num_ranks, ranks_per_host, num_roots);
    EXPECT_GE(report.num_connects, static_cast<uint64_t>(num_ranks - 1));
    EXPECT_LE(report.fan_in, 128);
    EXPECT_GE(report.ready_s, 0);
  }
}

// What does not depend on the speed of the machine is the same in the simulation.
TEST(VirtualRanks, TakeTheWaysThatTheSimulationTakes) {
  BootstrapScenario scenario;
  scenario.num_ranks = 600;
  scenario.num_roots = 1;
  scenario.network.is_one_machine = true;
  scenario.network.start_skew_s = scenario.network.start_s = 0;
  scenario.network.wakeup_s = scenario.network.first_proof_s = 0;
  auto simulation = BootstrapSimulation::create(scenario);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  (*simulation)->run();
  const BootstrapReport simulated = (*simulation)->report();
  const VirtualRanksReport real = connect(600, 1, 1);
  EXPECT_EQ(real.fan_in, simulated.fan_in);
  EXPECT_LE(real.most_connections_rank, 4);
  EXPECT_LE(real.bytes_rank, 4096);
  EXPECT_NEAR(static_cast<double>(real.num_connects), static_cast<double>(simulated.num_connects), 60);
}

TEST(VirtualRanks, RefuseOptionsThatAreWrongByName) {
  const auto refused = [](auto change, const std::string& name, StatusCode code = StatusCode::kInvalidArgument) {
    VirtualRanksOptions options;
    options.num_ranks = 8;
    change(options);
    const auto report = run_virtual_ranks(options);
    ASSERT_EQ(report.status().code(), code) << name;
    EXPECT_NE(report.status().message().find(name), std::string::npos) << report.status();
  };
  refused([](auto& o) { o.num_ranks = 0; }, "num_ranks is 0");
  refused([](auto& o) { o.ranks_per_host = 0; }, "ranks_per_host is 0");
  refused([](auto& o) { o.num_roots = 9; }, "num_roots is 9");
  refused([](auto& o) { o.num_threads = 9; }, "num_threads is 9");
  refused([](auto& o) { o.num_ranks = 1 << 16; }, "limit of open files", StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace qx::collectives
