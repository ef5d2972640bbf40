// Who is named when time runs out while ranks are in different operations.
#include <fstream>

#include "collectives/ranks.h"

namespace qx::collectives::testing {
namespace {

class Expiry : public ::testing::TestWithParam<bool> {
 protected:
  Job job(int world_size) const { return {world_size, GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Transports, Expiry, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Tcp"; });

void require_names_only(const Status& status, int late, int world_size) {
  require_contains(status, StatusCode::kDeadlineExceeded, {"rank " + std::to_string(late) + " ("});
  for (int rank = 0; rank < world_size; ++rank) {
    const bool is_named = status.message().find("rank " + std::to_string(rank) + " (") != std::string::npos;
    require(rank == late || !is_named, "a rank that was in time is named: " + status.message());
  }
}

bool is_stopped(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  return line.find(") T ") != std::string::npos;
}

// The others go on once none of its threads can move data, and wake it.
void stop_and_arrive(const Arrivals& stopped, const Arrivals& told, int num_told) {
  const pid_t self = getpid();
  if (fork() == 0) {
    while (!is_stopped(self)) std::this_thread::sleep_for(milliseconds(1));
    stopped.arrive();
    told.wait_for(num_told);
    kill(self, SIGCONT);
    _exit(0);
  }
  kill(self, SIGSTOP);
}

// Rank 0 has done its part of the gather, and has given up the barrier behind it, when rank 1 asks who is late.
TEST_P(Expiry, ARankThatHasFailedInALaterOperationStillAnswers) {
  constexpr int kRanks = 3, kLate = 2;
  constexpr int64_t kCount = 20000;
  const Arrivals entered, told;
  run_processes(job(kRanks), [&](const Job& job, int rank) {
    const auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    std::vector<float> in(kCount, 1.0f), out(kCount * kRanks);
    std::vector<Buffer> outputs;
    for (int r = 0; r < kRanks && rank == 1; ++r) outputs.push_back({out.data() + r * kCount, kCount, DType::kFloat32});
    const auto gather = [&](milliseconds timeout) {
      return group->gather(buffer_of(in, DType::kFloat32), outputs, 1, timeout);
    };
    if (rank == kLate) {
      // Its call is told and its data is not: nothing moves before all have called.
      const WorkPtr work = gather(milliseconds(20000));
      stop_and_arrive(entered, told, kRanks - 1);
      _exit(0);
    }
    entered.wait_for(1);
    if (rank == 0) require_ok(gather(milliseconds(20000))->wait());
    const WorkPtr work = rank == 0 ? group->barrier(milliseconds(300)) : gather(milliseconds(1500));
    require_names_only(work->wait(), kLate, kRanks);
    told.arrive();
    told.wait_for(kRanks - 1);
  });
}

// What it owed has come: it is not what the others wait for.
TEST_P(Expiry, ARankThatLeftAfterItsPartIsNotNamed) {
  constexpr int kRanks = 4, kLeaves = 1, kLate = 3;
  const Arrivals told;
  run_processes(job(kRanks),
                [&](const Job& job, int rank) {
                  auto group = connect(job, rank);
                  require_ok(group->barrier()->wait());
                  if (rank == kLate) return told.wait_for(kRanks - 2);
                  if (rank == kLeaves) {
                    const WorkPtr work = group->barrier();
                    std::this_thread::sleep_for(milliseconds(100));
                    kill(getpid(), SIGKILL);
                  }
                  std::this_thread::sleep_for(milliseconds(50));
                  const Status status = group->barrier(milliseconds(600))->wait();
                  require(status.message().find("rank 3 (not entered") != std::string::npos, status.to_string());
                  require(status.message().find("rank 1 (") == std::string::npos, status.to_string());
                  told.arrive();
                  told.wait_for(kRanks - 2);
                },
                {0, -SIGKILL, 0, 0});
}

}  // namespace
}  // namespace qx::collectives::testing
