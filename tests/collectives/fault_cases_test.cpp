// Seeded faults: every survivor is told exactly which ranks are to blame, in time. QX_FAULT_CASES=FIRST-LAST chooses
// the seeds; with QX_FAULT_REPORT=FILE what was told is written there as JSON, and only that it could be is tested.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "collectives/fault_run.h"

namespace qx::collectives::testing {
namespace {

constexpr double kSecondsOfGrace = 1.0;

std::pair<uint64_t, uint64_t> chosen_seeds() {
  const char* text = std::getenv("QX_FAULT_CASES");
  unsigned long long first = 0, last = kNumFaults - 1;  // each fault once
  if (text != nullptr) QX_CHECK(std::sscanf(text, "%llu-%llu", &first, &last) == 2 && first <= last);
  return {first, last};
}

TEST(BlamedRanks, AreThoseThatAreSaidToBeLate) {
  using Ranks = std::set<int>;
  EXPECT_EQ(
      blamed_ranks("rank 0 reported: barrier #0 timed out after 500 ms on rank 0, waiting for rank 2 (not entered)"),
      Ranks{2});
  EXPECT_EQ(blamed_ranks("rank 1 (not connected: x), rank 3 (entered, 4 bytes to come)"), (Ranks{1, 3}));
  EXPECT_EQ(blamed_ranks("after 0.5 s ranks 1, 4-6 of 8 are missing"), (Ranks{1, 4, 5, 6}));
  EXPECT_EQ(blamed_ranks("rank 7 of 8 is missing"), Ranks{7});
  EXPECT_EQ(blamed_ranks("rank 2 has died: its connection to rank 0 has ended (closed)"), Ranks{2});
  EXPECT_EQ(blamed_ranks("size: rank 0 called barrier(), rank 2 called all_reduce(float32[1], SUM)"), (Ranks{0, 2}));
}

TEST(FaultCases, AreTheSameForTheSameSeedAndCoverEveryFault) {
  std::set<Fault> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const FaultCase a = draw_fault_case(seed), b = draw_fault_case(seed);
    EXPECT_EQ(a.name(), b.name());
    EXPECT_EQ(a.count, b.count);
    EXPECT_LT(static_cast<int>(a.victims.size()), a.world_size);
    EXPECT_TRUE(a.world_size >= 2 && a.world_size <= 8);
    seen.insert(a.fault);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kNumFaults));
}

TEST(FaultCases, EverySurvivorBlamesExactlyTheRightRanksInTime) {
  const auto [first, last] = chosen_seeds();
  const char* report_path = std::getenv("QX_FAULT_REPORT");
  nlohmann::json rows = nlohmann::json::array();
  for (uint64_t seed = first; seed <= last; ++seed) {
    const FaultCase fault = draw_fault_case(seed);
    const std::vector<FaultReport> reports = run_fault_case(fault);
    for (const FaultReport& report : reports) {
      const std::string problem = judge(fault, report);
      const double delay = delay_of(fault, report);
      rows.push_back({{"seed", seed},
                      {"case", fault.name()},
                      {"rank", report.rank},
                      {"problem", problem},
                      {"delay_s", delay},
                      {"message", report.message}});
      if (report_path != nullptr) continue;
      EXPECT_EQ(problem, "") << fault.name() << ", rank " << report.rank;
      EXPECT_LE(delay, kSecondsOfGrace) << fault.name() << ", rank " << report.rank;
    }
    EXPECT_EQ(reports.size(), static_cast<size_t>(fault.world_size) - fault.victims.size());
  }
  if (report_path == nullptr) return;
  std::ofstream file(report_path);
  file << rows.dump(1) << "\n";
  EXPECT_TRUE(file.flush());
}

}  // namespace
}  // namespace qx::collectives::testing
