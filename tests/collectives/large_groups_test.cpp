// Groups whose calls are gathered through a tree: what disagrees, is late, stops or dies is named as in small groups.
#include <atomic>

#include "collectives/ranks.h"

namespace qx::collectives::testing {
namespace {

using Clock = std::chrono::steady_clock;

int64_t milliseconds_since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start).count();
}

class LargeGroups : public ::testing::TestWithParam<bool> {
 protected:
  Job job(int world_size) const { return {world_size, GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Transports, LargeGroups, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Tcp"; });

TEST_P(LargeGroups, AnotherCallOfAnyRankIsAnErrorOnAllAndTheGroupGoesOn) {
  constexpr int kRanks = 11;
  run_threads(job(kRanks), [](Communicator& group, int rank) {
    for (int odd = 1; odd < kRanks; ++odd) {
      std::vector<float> data(rank == odd ? 12 : 10, 1.0f);
      require_contains(
          group.all_reduce(buffer_of(data, DType::kFloat32), {})->wait(), StatusCode::kInvalidArgument,
          {"all_reduce #" + std::to_string(2 * odd - 2), "size", "rank 0 called all_reduce(float32[10], SUM)",
           "rank " + std::to_string(odd) + " called all_reduce(float32[12], SUM)"});
      std::vector<float> fine(5, 1.0f);
      require_ok(group.all_reduce(buffer_of(fine, DType::kFloat32), {})->wait());
      require(fine[4] == kRanks, "the group does not work after a mismatch");
    }
  });
}

TEST_P(LargeGroups, ManyOperationsAtOnceKeepTheirOrder) {
  run_threads(job(13), [](Communicator& group, int rank) {
    std::vector<std::vector<int64_t>> data;
    std::vector<WorkPtr> works;
    // Small, through the tree; and larger, directly.
    for (int64_t i = 0; i < 40; ++i) data.emplace_back(i % 8 == 7 ? 30000 : 3, i + rank);
    for (auto& values : data) works.push_back(group.all_reduce(buffer_of(values, DType::kInt64), {ReduceOp::kMax}));
    for (int64_t i = 39; i >= 0; --i) {
      require_ok(works[static_cast<size_t>(i)]->wait());
      require(data[static_cast<size_t>(i)].back() == i + 12, "maximum");
    }
  });
}

TEST_P(LargeGroups, SmallMessagesNeedFewLinks) {
  run_threads(job(33), [](Communicator& group, int rank) {
    std::vector<float> data(8, 1.0f);
    require_ok(group.barrier()->wait());
    require_ok(group.all_reduce(buffer_of(data, DType::kFloat32), {})->wait());
    require_ok(group.broadcast(buffer_of(data, DType::kFloat32), 20)->wait());
    const std::string text = group.statistics_json();
    const auto number = [&](const std::string& key) {
      const std::string quoted = "\"" + key + "\": ";
      return std::atoi(text.c_str() + text.find(quoted) + quoted.size());
    };
    // Rank 0 of 33 has 6 below it; the others have at most 5 and the one above.
    const int links = number("shared_memory_peers") + number("tcp_peers");
    require(links <= 6, "rank " + std::to_string(rank) + " has " + std::to_string(links) + " links");
    require_ok(group.barrier()->wait());
  });
}

// Who is late, and who stays to be told.
void expect_named(const Job& job, const std::vector<int>& late) {
  const Arrivals told;
  const int num_in_time = job.world_size - static_cast<int>(late.size());
  run_processes(job, [&](const Job& job, int rank) {
    auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    if (std::find(late.begin(), late.end(), rank) != late.end()) return told.wait_for(num_in_time);
    std::vector<float> data(4, 1.0f);
    const auto start = Clock::now();
    const Status status = group->all_reduce(buffer_of(data, DType::kFloat32), {}, milliseconds(500))->wait();
    const int64_t waited = milliseconds_since(start);
    told.arrive();
    std::vector<std::string> parts = {"all_reduce #1 of group 'default' (16 bytes)"};
    for (const int r : late) parts.push_back("rank " + std::to_string(r) + " (not entered; its last was barrier #0)");
    require_contains(status, StatusCode::kDeadlineExceeded, parts);
    for (int r = 0; r < job.world_size; ++r) {
      const bool is_late = std::find(late.begin(), late.end(), r) != late.end();
      const bool is_named = status.message().find("rank " + std::to_string(r) + " (") != std::string::npos;
      require(is_late == is_named, "rank " + std::to_string(r) + " in: " + status.message());
    }
    require(waited < 1500, "told after " + std::to_string(waited) + " ms");
  });
}

TEST_P(LargeGroups, LateRanksAreNamedExactly) { expect_named(job(10), {3, 6}); }
TEST_P(LargeGroups, ALateRootOfTheTreeIsNamed) { expect_named(job(9), {0}); }
TEST_P(LargeGroups, ALateRootAndItsDeputyAreNamed) { expect_named(job(9), {0, 1}); }

// The last to come leads nobody: ranks ask their leader for the addresses of others, and one that is stopped is given
// up only after two seconds.
TEST_P(LargeGroups, AStoppedRankIsNamedAtTheDeadline) {
  const Arrivals told;
  run_processes(job(10), [&](const Job& job, int rank) {
    if (rank == 4) std::this_thread::sleep_for(milliseconds(300));
    auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    if (rank == 4) return stop_this_process(told, 9);
    const auto start = Clock::now();
    const Status status = group->barrier(milliseconds(600))->wait();
    told.arrive();
    require_contains(status, StatusCode::kDeadlineExceeded, {"barrier #1", "rank 4 (", "does not answer"});
    require(status.message().find("rank 5 (") == std::string::npos, "rank 5 was in time: " + status.message());
    require(milliseconds_since(start) < 1600, "told after " + std::to_string(milliseconds_since(start)) + " ms");
  });
}

TEST_P(LargeGroups, AKilledRankIsNamedByAllSurvivorsWithinTwoSeconds) {
  std::vector<int> expected(10, 0);
  expected[6] = -SIGKILL;
  run_processes(
      job(10),
      [](const Job& job, int rank) {
        auto group = connect(job, rank);
        std::vector<float> data(100, 1.0f);
        require_ok(group->all_reduce(buffer_of(data, DType::kFloat32), {})->wait());
        if (rank == 6) kill(getpid(), SIGKILL);
        const auto start = Clock::now();
        const Status status = group->all_reduce(buffer_of(data, DType::kFloat32), {})->wait();
        require_contains(status, StatusCode::kUnavailable, {"all_reduce #1", "rank 6 (died: its process "});
        require(milliseconds_since(start) < 2000, "late");
      },
      expected);
}

TEST_P(LargeGroups, ARankThatLeavesInOrderIsSaidToHaveLeft) {
  run_processes(job(9), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    if (rank == 5) return;  // the destructor runs
    require_contains(group->barrier()->wait(), StatusCode::kUnavailable, {"rank 5 (has "});
  });
}

// Nobody fails because another has finished and gone while the verdict is on its way.
TEST_P(LargeGroups, RanksMayLeaveAsSoonAsTheyAreDone) {
  for (int round = 0; round < 5; ++round) {
    run_threads(job(12), [](Communicator& group, int) { require_ok(group.barrier()->wait()); });
  }
}

TEST_P(LargeGroups, AbortWakesAll) {
  run_threads(job(12), [](Communicator& group, int rank) {
    require_ok(group.barrier()->wait());
    if (rank != 7) {
      return require_contains(group.barrier()->wait(), StatusCode::kAborted, {"told to stop"});
    }
    std::this_thread::sleep_for(milliseconds(100));
    group.abort("told to stop");
    std::this_thread::sleep_for(milliseconds(300));
  });
}

}  // namespace
}  // namespace qx::collectives::testing
