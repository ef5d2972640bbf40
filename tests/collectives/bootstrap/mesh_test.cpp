// How ranks come together: who is told what when somebody is missing, dies or is twice there, and that jobs, groups and
// restarts do not meet each other.
#include <sys/resource.h>

#include "collectives/ranks.h"
#include "quincunx/collectives/security/secure_channel.h"

namespace qx::collectives::testing {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int64_t sum_of_ones(Communicator& group) {
  int64_t one = 1;
  require_ok(group.all_reduce({&one, 1, DType::kInt64}, {})->wait());
  return one;
}

TEST(Mesh, WorksWithinALimitOf64Descriptors) {
  run_processes({16}, [](const Job& job, int rank) {
    const rlimit few{64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
    require(sum_of_ones(*connect(job, rank)) == 16, "sum");
  });
}

TEST(Mesh, OpensTcpLinksWhenTheyAreNeeded) {
  run_processes({4, false}, [](const Job& job, int rank) {
    const auto group = connect(job, rank);
    require_ok(group->wait_ready(milliseconds(20000)));
    require(contains(group->statistics_json(), "\"tcp_peers\": 0"), group->statistics_json());
    // Ranks that go on open links to those that have not looked yet.
    const auto store = FileStore::open(job.directory);
    require_ok((*store)->set("looked/" + std::to_string(rank), ""));
    for (int other = 0; other < 4; ++other) {
      require_ok((*store)->get("looked/" + std::to_string(other), milliseconds(10000)).status());
    }
    int32_t value = rank;
    const Buffer buffer{&value, 1, DType::kInt32};
    // The lower rank of two sends first in one pair, the higher one in the other.
    if (rank == 0) require_ok(group->send(buffer, 1, 0)->wait());
    if (rank == 1) require_ok(group->recv(buffer, 0, 0)->wait());
    if (rank == 3) require_ok(group->send(buffer, 2, 0)->wait());
    if (rank == 2) require_ok(group->recv(buffer, 3, 0)->wait());
    require(value == (rank == 1 ? 0 : rank == 2 ? 3 : rank), "the message");
    // A small send ends before its link is there.
    const auto limit = std::chrono::steady_clock::now() + milliseconds(10000);
    const auto has_links = [&] { return !contains(group->statistics_json(), "\"tcp_peers\": 0"); };
    while (!has_links() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(milliseconds(2));
    require(has_links(), group->statistics_json());
    require_ok(group->barrier()->wait());
    require(sum_of_ones(*group) == 4, "sum");
  });
}

TEST(Mesh, JobsOfOneHostDoNotMeet) {
  const Directory shared;
  run_processes({4}, [&](const Job& job, int rank) {
    // Two jobs of two in stores of their own, with the same names and at the same time.
    Job own = job;
    own.world_size = 2;
    own.directory = shared.path() + "/" + std::to_string(rank / 2);
    for (int round = 0; round < 3; ++round) {
      Options options = options_of(own, rank % 2);
      options.generation = std::to_string(round);
      const auto group = Communicator::create(options, *FileStore::open(own.directory));
      require_ok(group.status());
      require(sum_of_ones(**group) == 2, "a rank of another job or start was met");
    }
  });
}

// Nothing on the way to the host's shared memory asks for a proof, so that strangers must not find the way.
TEST(Mesh, WhoeverHasAnotherSecretGetsNoSharedMemory) {
  const Arrivals tried;
  run_processes({3}, [&](const Job& job, int process) {
    const bool is_stranger = process == 2;
    Job own = job;
    own.world_size = 2;
    auto credentials = std::make_shared<Credentials>();
    credentials->secret = Secret(is_stranger ? "fedcba9876543210" : "0123456789abcdef");
    // The stranger takes the place of rank 1, which comes later.
    Options options = options_of(own, process > 0 ? 1 : 0);
    options.credentials = std::move(credentials);
    if (process == 1) tried.wait_for(1);
    const auto group = Communicator::create(options, *FileStore::open(own.directory));
    require_ok(group.status());
    if (is_stranger) {
      const Status status = (*group)->wait_ready(milliseconds(500));
      require(status.code() == StatusCode::kDeadlineExceeded, status.to_string());
      tried.arrive();
      return;
    }
    require(sum_of_ones(**group) == 2, "sum");
    const std::string statistics = (*group)->statistics_json();
    require(contains(statistics, "\"shared_memory_peers\": 1"), statistics);
  });
}

TEST(Mesh, GroupsOfOneStoreDoNotMeet) {
  run_threads({2}, [](Communicator& group, int) { require(sum_of_ones(group) == 2, "sum"); });
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Options options = options_of({2}, i % 2);
      options.group_name = "group " + std::to_string(i / 2);
      const auto group = Communicator::create(options, store);
      require_ok(group.status());
      require(sum_of_ones(**group) == 2, "sum");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A store that cannot tell itself from others: ranks of a host wait for rank 0 before they look for each other.
TEST(Mesh, NeedsNoIdentityOfTheStore) {
  class Nameless : public MemoryStore {
   public:
    std::string identity() override { return {}; }
  };
  const auto store = std::make_shared<Nameless>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      if (rank == 0) std::this_thread::sleep_for(milliseconds(50));
      const auto group = Communicator::create(options_of({3}, rank), store);
      require_ok(group.status());
      require(sum_of_ones(**group) == 3, "sum");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class Phases : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Transports, Phases, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Tcp"; });

TEST_P(Phases, TheRootMayComeLate) {
  run_processes({3, GetParam()}, [](const Job& job, int rank) {
    if (rank == 0) std::this_thread::sleep_for(milliseconds(700));
    require(sum_of_ones(*connect(job, rank)) == 3, "sum");
  });
}

TEST_P(Phases, ARootThatNeverComesIsNamedAlone) {
  run_processes({3, GetParam()}, [](const Job& job, int rank) {
    if (rank == 0) return;
    const auto group = connect(job, rank);
    require_contains(group->barrier(milliseconds(900))->wait(), StatusCode::kDeadlineExceeded,
                     {"rank 0 (not connected: has not been seen", "the root, rank 0, has not published"});
    // Who leaves while the others still wait is what they are told of.
    std::this_thread::sleep_for(milliseconds(500));
  });
}

TEST_P(Phases, ARankThatDiesBeforeAllAreThereIsNamed) {
  run_processes({4, GetParam()},
                [](const Job& job, int rank) {
                  if (rank == 3) return;  // so that the others never have all
                  const auto group = connect(job, rank);
                  if (rank == 2) {
                    std::this_thread::sleep_for(milliseconds(500));
                    kill(getpid(), SIGKILL);
                  }
                  const Status status = group->barrier(milliseconds(5000))->wait();
                  require_contains(status, StatusCode::kUnavailable, {"rank 2", "died"});
                },
                {0, 0, -SIGKILL, 0});
}

TEST_P(Phases, ARankThatDiesWithoutALinkIsNamed) {
  run_processes({4, GetParam()},
                [](const Job& job, int rank) {
                  const auto group = connect(job, rank);
                  require_ok(group->wait_ready(milliseconds(20000)));
                  if (rank == 1) {
                    std::this_thread::sleep_for(milliseconds(300));
                    kill(getpid(), SIGKILL);
                  }
                  const auto start = std::chrono::steady_clock::now();
                  require_contains(group->barrier()->wait(), StatusCode::kUnavailable, {"rank 1 (died: its process"});
                  require(std::chrono::steady_clock::now() - start < milliseconds(2300), "late");
                },
                {0, -SIGKILL, 0, 0});
}

TEST_P(Phases, ARankThatIsTwiceThereIsNamedOnAll) {
  run_processes({3, GetParam()}, [](const Job& job, int rank) {
    Job two = job;
    two.world_size = 2;
    two.timeout = milliseconds(1200);
    if (rank == 2) std::this_thread::sleep_for(milliseconds(500));
    // Ranks 0, 1 and 1 of 2: whoever comes last is refused, or the job.
    const auto group = connect(two, std::min(rank, 1));
    const Status status = group->barrier()->wait();
    if (rank == 2) require(!status.ok(), "a second rank 1 was let in");
    if (!status.ok()) require(contains(status.message(), "rank"), status.message());
  });
}

TEST_P(Phases, AnotherWorldSizeIsNamed) {
  run_processes({2, GetParam()}, [](const Job& job, int rank) {
    Job other = job;
    other.world_size = rank == 0 ? 2 : 3;
    other.timeout = milliseconds(1200);
    const Status status = connect(other, rank)->barrier()->wait();
    require(!status.ok(), "ranks of two world sizes have met");
    if (rank == 1) {
      require_contains(status, StatusCode::kFailedPrecondition, {"rank 0 has world size 2, this rank has 3"});
    }
  });
}

}  // namespace
}  // namespace qx::collectives::testing
