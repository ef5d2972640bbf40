// What happens when ranks disagree, are late, stop or die: every survivor gets an error that names who and what.

#include <fstream>

#include "collectives/ranks.h"

namespace qx::collectives::testing {
namespace {

using Clock = std::chrono::steady_clock;

class Faults : public ::testing::TestWithParam<bool> {
 protected:
  Job job(int world_size) const { return {world_size, GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Transports, Faults, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Tcp"; });

int64_t milliseconds_since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start).count();
}

TEST_P(Faults, AnotherSizeIsAnErrorOnAllRanksAndTheGroupGoesOn) {
  run_processes(job(3), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    std::vector<float> data(rank == 2 ? 12 : 10, 1.0f);
    require_contains(group->all_reduce(buffer_of(data, DType::kFloat32), {})->wait(), StatusCode::kInvalidArgument,
                     {"all_reduce #0", "size", "rank 0 called all_reduce(float32[10], SUM)",
                      "rank 2 called all_reduce(float32[12], SUM)"});
    std::vector<float> fine(5, 1.0f);
    require_ok(group->all_reduce(buffer_of(fine, DType::kFloat32), {})->wait());
    require(fine[4] == 3.0f, "the group does not work after a mismatch");
  });
}

TEST_P(Faults, AnotherDtypeOperationReductionOrRootIsAnErrorOnAllRanks) {
  run_processes(job(2), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    std::vector<float> data(4, 1.0f);
    const Buffer floats = buffer_of(data, DType::kFloat32);
    const Buffer integers = buffer_of(data, DType::kInt32);
    require_contains(group->all_reduce(rank == 0 ? floats : integers, {})->wait(), StatusCode::kInvalidArgument,
                     {"dtype", "float32[4]", "int32[4]"});
    require_contains((rank == 0 ? group->barrier() : group->broadcast(floats, 0))->wait(), StatusCode::kInvalidArgument,
                     {"operation", "rank 0 called barrier()", "rank 1 called broadcast"});
    require_contains(group->all_reduce(floats, {rank == 0 ? ReduceOp::kSum : ReduceOp::kMax})->wait(),
                     StatusCode::kInvalidArgument, {"reduction", "SUM", "MAX"});
    require_contains(group->broadcast(floats, rank)->wait(), StatusCode::kInvalidArgument, {"root 0", "root 1"});
    require_ok(group->barrier()->wait());
  });
}

TEST_P(Faults, UnevenSizesThatDoNotFitAreAnErrorOnAllRanks) {
  run_processes(job(3), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    std::vector<int32_t> in(8, rank), out(8, -1);
    std::vector<Buffer> inputs, outputs;
    for (int r = 0; r < 3; ++r) {
      const bool odd = rank == 1 && r == 2;  // rank 1 sends two elements where rank 2 expects one
      inputs.push_back({in.data(), odd ? 2 : 1, DType::kInt32});
      outputs.push_back({out.data() + r, 1, DType::kInt32});
    }
    require_contains(group->all_to_all(inputs, outputs)->wait(), StatusCode::kInvalidArgument,
                     {"rank 1 has 2 elements for rank 2, which has 1"});
  });
}

TEST_P(Faults, ALateRankIsNamedAtTheDeadline) {
  const Arrivals told;
  run_processes(job(3), [&](const Job& job, int rank) {
    auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    if (rank == 2) {
      told.wait_for(2);
      std::vector<float> data(4, 1.0f);
      require(!group->all_reduce(buffer_of(data, DType::kFloat32), {})->wait().ok(), "the others had given up");
      return;
    }
    std::vector<float> data(4, 1.0f);
    const auto start = Clock::now();
    const Status status = group->all_reduce(buffer_of(data, DType::kFloat32), {}, milliseconds(500))->wait();
    told.arrive();
    require_contains(status, StatusCode::kDeadlineExceeded,
                     {"all_reduce #1 of group 'default' (16 bytes)", "rank 2 (not entered; its last was barrier #0)"});
    require(status.message().find("rank " + std::to_string(1 - rank) + " (") == std::string::npos,
            "a rank that was in time is named: " + status.message());
    require(milliseconds_since(start) < 1400, "late");
    require(!group->barrier()->wait().ok(), "a failed group took another operation");
  });
}

TEST_P(Faults, ARankThatNeverStartsIsNamed) {
  const Arrivals told;
  run_processes(job(3), [&](const Job& job, int rank) {
    if (rank == 1) return;
    auto group = connect(job, rank);
    require(!group->ready(), "ready without rank 1");
    require_contains(group->barrier(milliseconds(700))->wait(), StatusCode::kDeadlineExceeded,
                     {"barrier #0", "rank 1 (not connected: has not been seen"});
    const Progress progress = group->progress();
    require(progress.ranks_missing == std::vector<int>{1}, "missing ranks");
    require(progress.phase == Phase::kFailed, "phase");
    // Who leaves while the others still wait is what they are told of.
    told.arrive();
    told.wait_for(2);
  });
}

TEST_P(Faults, AWaitWithItsOwnTimeoutIsObeyed) {
  const Arrivals told;
  run_processes(job(2), [&](const Job& job, int rank) {
    auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    if (rank == 1) return told.wait_for(1);
    const WorkPtr work = group->barrier();
    const auto start = Clock::now();
    require_contains(work->wait(milliseconds(400)), StatusCode::kDeadlineExceeded, {"rank 1"});
    told.arrive();
    require(milliseconds_since(start) >= 400 && milliseconds_since(start) < 1100, "time");
  });
}

TEST_P(Faults, AnOperationThatNobodyWaitsForExpiresToo) {
  const Arrivals told;
  run_processes(job(2), [&](const Job& job, int rank) {
    auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    if (rank == 1) return told.wait_for(1);
    const WorkPtr work = group->barrier(milliseconds(300));
    const auto start = Clock::now();
    while (!work->is_completed() && milliseconds_since(start) < 2300) std::this_thread::sleep_for(milliseconds(10));
    require_contains(work->status(), StatusCode::kDeadlineExceeded, {"rank 1"});
    told.arrive();
  });
}

// Both that wait for the dead rank and a third that waits for a survivor hear of it.
TEST_P(Faults, AKilledRankIsNamedByAllSurvivorsWithinTwoSeconds) {
  run_processes(job(4),
                [](const Job& job, int rank) {
                  auto group = connect(job, rank);
                  std::vector<float> data(3000000, 1.0f);
                  require_ok(group->all_reduce(buffer_of(data, DType::kFloat32), {})->wait());
                  if (rank == 2) {
                    group->all_reduce(buffer_of(data, DType::kFloat32), {});
                    kill(getpid(), SIGKILL);
                  }
                  const auto start = Clock::now();
                  const Status status = group->all_reduce(buffer_of(data, DType::kFloat32), {})->wait();
                  require_contains(status, StatusCode::kUnavailable, {"all_reduce #1", "rank 2 (died: its process "});
                  require(milliseconds_since(start) < 2000,
                          "took " + std::to_string(milliseconds_since(start)) + " ms");
                },
                {0, 0, -SIGKILL, 0});
}

TEST_P(Faults, AStoppedRankIsNamedAtTheDeadline) {
  const Arrivals told;
  run_processes(job(2), [&](const Job& job, int rank) {
    auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    if (rank == 1) return stop_this_process(told, 1);
    std::vector<float> data(100, 1.0f);
    require_contains(group->all_reduce(buffer_of(data, DType::kFloat32), {}, milliseconds(600))->wait(),
                     StatusCode::kDeadlineExceeded, {"rank 1 (not entered"});
    told.arrive();
  });
}

TEST_P(Faults, ARankThatLeavesInOrderIsSaidToHaveLeft) {
  run_processes(job(2), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    if (rank == 1) return;  // the destructor runs
    require_contains(group->barrier()->wait(), StatusCode::kUnavailable, {"rank 1 (has "});
  });
}

TEST_P(Faults, AbortWakesWaitersHereAndThere) {
  run_processes(job(2), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    if (rank == 1) {
      std::vector<float> data(4);
      require_contains(group->recv(buffer_of(data, DType::kFloat32), 0, 0)->wait(), StatusCode::kAborted,
                       {"rank 0 reported", "told to stop"});
      return;
    }
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(200));
      group->abort("told to stop");
    });
    require_contains(group->barrier()->wait(), StatusCode::kAborted, {"told to stop"});
    require_contains(group->barrier()->wait(), StatusCode::kAborted, {"told to stop"});
    other.join();
  });
}

TEST_P(Faults, AbortEndsConnecting) {
  run_processes(job(2), [](const Job& job, int rank) {
    if (rank == 1) return;
    auto group = connect(job, rank);
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(100));
      group->abort("no");
    });
    const auto start = Clock::now();
    require_contains(group->barrier()->wait(), StatusCode::kAborted, {"no"});
    require(milliseconds_since(start) < 2000, "late");
    other.join();
  });
}

TEST_P(Faults, BadArgumentsFailAtOnceAndLeaveTheGroupUsable) {
  run_processes(job(2), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    std::vector<float> data(4, 1.0f);
    const Buffer good = buffer_of(data, DType::kFloat32);
    const auto fails = [](const WorkPtr& work, StatusCode code, const std::string& part) {
      require(work->is_completed(), "not at once");
      require_contains(work->wait(), code, {part});
    };
    fails(group->all_reduce({nullptr, 4, DType::kFloat32}, {}), StatusCode::kInvalidArgument, "buffer.data");
    fails(group->all_reduce({data.data(), -1, DType::kFloat32}, {}), StatusCode::kInvalidArgument, "got -1");
    fails(group->all_reduce(good, {ReduceOp::kBitAnd}), StatusCode::kUnimplemented, "BAND is not defined for float32");
    fails(group->broadcast(good, 2), StatusCode::kInvalidArgument, "root: expected a rank from 0 to 1, got 2");
    fails(group->all_gather(good, {good}), StatusCode::kInvalidArgument, "outputs");
    fails(group->all_gather(good, {good, buffer_of(data, DType::kInt32)}), StatusCode::kTypeError, "outputs[1].dtype");
    const Buffer head{data.data(), 2, DType::kFloat32}, middle{data.data() + 1, 2, DType::kFloat32};
    const Buffer tail{data.data() + 2, 2, DType::kFloat32};
    const std::string apart = ": expected memory apart from input";
    fails(group->all_gather(rank == 0 ? tail : head, {head, tail}), StatusCode::kInvalidArgument, apart);
    fails(group->all_to_all({head, tail}, {head, tail}), StatusCode::kInvalidArgument, apart);
    fails(group->reduce_scatter({head, tail}, middle, {}), StatusCode::kInvalidArgument, apart);
    fails(group->reduce(head, middle, rank, {}), StatusCode::kInvalidArgument, apart);
    fails(group->gather(middle, {head, tail}, rank), StatusCode::kInvalidArgument, apart);
    fails(group->scatter({head, tail}, middle, rank), StatusCode::kInvalidArgument, apart);
    fails(group->send(good, rank, 0), StatusCode::kInvalidArgument, "destination");
    fails(group->recv(good, 7, 0), StatusCode::kInvalidArgument, "source");
    fails(group->barrier(milliseconds(-5)), StatusCode::kInvalidArgument, "timeout");
    const std::vector<int> twice = {0, 0}, without = {1 - rank};
    require(!group->split(twice, "a").ok() && !group->split(without, "b").ok(), "split of bad members");
    require_ok(group->barrier()->wait());
  });
}

TEST_P(Faults, AForkedChildIsRefusedAndItsParentGoesOn) {
  run_processes(job(2), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    require_ok(group->barrier()->wait());
    const pid_t child = fork();
    if (child == 0) {
      require_contains(group->barrier()->wait(), StatusCode::kFailedPrecondition, {"inherited by fork"});
      group.reset();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed");
    require_ok(group->barrier()->wait());
  });
}

// A child that outlives its parent must not keep the parent's connections open.
TEST_P(Faults, DeathIsSeenThoughAChildOfTheDeadRankLives) {
  run_processes(job(2),
                [](const Job& job, int rank) {
                  auto group = connect(job, rank);
                  require_ok(group->barrier()->wait());
                  if (rank == 1) {
                    if (fork() == 0) {
                      std::this_thread::sleep_for(milliseconds(3000));
                      _exit(0);
                    }
                    kill(getpid(), SIGKILL);
                  }
                  const auto start = Clock::now();
                  require_contains(group->barrier()->wait(), StatusCode::kUnavailable, {"rank 1 (died"});
                  require(milliseconds_since(start) < 2000, "late");
                },
                {0, -SIGKILL});
}

int count_entries(const char* directory) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

TEST_P(Faults, NothingRemainsAfterDestruction) {
  run_processes(job(2), [](const Job& job, int rank) {
    std::thread([] {}).join();  // With the first thread of a process a sanitizer may start one of its own.
    const int files = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    for (int round = 0; round < 3; ++round) {
      Job again = job;
      again.directory += "/" + std::to_string(round);
      auto group = connect(again, rank);
      require_ok(group->barrier()->wait());
      const std::vector<int> all = {0, 1};
      require_ok((*group->split(all, "again"))->barrier()->wait());
    }
    require(count_entries("/proc/self/fd") == files, "descriptors remain");
    require(count_entries("/proc/self/task") == threads, "threads remain");
    std::ifstream maps("/proc/self/maps");
    const std::string text{std::istreambuf_iterator<char>(maps), {}};
    require(text.find("quincunx-mccl") == std::string::npos, "a shared segment remains mapped");
  });
}

TEST_P(Faults, StrangersAreDroppedAndCounted) {
  run_processes(job(2), [](const Job& job, int rank) {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(500));
    auto group = connect(job, rank);
    if (rank == 0) {
      // The port is in the record that rank 0, the root, has published.
      auto store = FileStore::open(job.directory);
      const auto record = (*store)->get("qx.mccl/default//root/0", milliseconds(5000));
      require_ok(record.status());
      const size_t at = record->find("127.0.0.1:");
      const int port = std::atoi(record->c_str() + at + 10);
      const std::string http = "GET / HTTP/1.1\r\n\r\n" + std::string(64, ' ');
      for (const std::string& text : {std::string(200, 'x'), http}) {
        const std::string command =
            "exec 3<>/dev/tcp/127.0.0.1/" + std::to_string(port) + "; printf '" + text + "' >&3; cat <&3 >/dev/null";
        require(std::system(("timeout 5 bash -c \"" + command + "\" 2>/dev/null").c_str()) != -1, "no shell");
      }
    }
    require_ok(group->barrier()->wait());
    if (rank == 0) {
      // More where a slow rank 1 had to call again.
      const std::string statistics = group->statistics_json(), key = "\"connections_dropped\": ";
      require(std::atoi(statistics.c_str() + statistics.find(key) + key.size()) >= 2, statistics);
    }
  });
}

TEST(Options, AreChecked) {
  const auto store = std::make_shared<MemoryStore>();
  Options options;
  options.world_size = 0;
  EXPECT_EQ(Communicator::create(options, store).status().code(), StatusCode::kInvalidArgument);
  options.world_size = 2;
  options.rank = 2;
  EXPECT_NE(Communicator::create(options, store).status().message().find("rank: expected"), std::string::npos);
  options.rank = 0;
  EXPECT_EQ(Communicator::create(options, nullptr).status().code(), StatusCode::kInvalidArgument);
  options.interface_address = "localhost";  // a name: never looked up
  EXPECT_NE(Communicator::create(options, store).status().message().find("interface_address"), std::string::npos);
  options.interface_address = "192.0.2.1";  // no address of this machine
  EXPECT_FALSE(Communicator::create(options, store).ok());
  options.interface_address.clear();
  options.timeout = milliseconds(0);
  EXPECT_FALSE(Communicator::create(options, store).ok());
}

}  // namespace
}  // namespace qx::collectives::testing
