// Communicators that go while others still use what they stood for: waiting threads, callbacks, operations in flight.
#include <sys/resource.h>

#include <atomic>
#include <ctime>

#include "collectives/ranks.h"

namespace qx::collectives::testing {
namespace {

class Lifetime : public ::testing::TestWithParam<bool> {
 protected:
  Job job(int world_size) const { return {world_size, GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Transports, Lifetime, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Tcp"; });

std::shared_ptr<Communicator> create(const Job& job, int rank, const std::shared_ptr<Store>& store) {
  auto created = Communicator::create(options_of(job, rank), store);
  require_ok(created.status());
  return *std::move(created);
}

bool holds_soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(1));
  return condition();
}

int num_threads() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// The callback runs on a thread of the communicator, which cannot join itself.
TEST_P(Lifetime, TheLastReferenceMayGoInACallback) {
  std::thread([] {}).join();  // With the first thread of a process a sanitizer may start one of its own.
  const int threads_before = num_threads();
  for (int round = 0; round < 10; ++round) {
    const auto store = std::make_shared<MemoryStore>();
    std::thread other([&] {
      const auto group = create(job(2), 1, store);
      std::vector<float> data(100000, 1.0f);
      std::this_thread::sleep_for(milliseconds(10));
      require_ok(group->all_reduce(buffer_of(data, DType::kFloat32), {})->wait());
    });
    auto group = create(job(2), 0, store);
    std::vector<float> data(100000, 1.0f);
    std::atomic<int> calls{0};
    const WorkPtr work = group->all_reduce(buffer_of(data, DType::kFloat32), {});
    work->on_completion([&calls, held = std::move(group)](const Status& status) mutable {
      held.reset();
      calls += status.ok() ? 1 : 100;
    });
    EXPECT_TRUE(holds_soon([&] { return calls > 0; }));
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(data[99999], 2.0f);
    other.join();
  }
  EXPECT_TRUE(holds_soon([&] { return num_threads() == threads_before; })) << "threads remain";
}

// The waiter sleeps on memory that belongs to the communicator.
TEST_P(Lifetime, AWaitingThreadIsToldBeforeTheMemoryGoes) {
  for (int round = 0; round < 10; ++round) {
    const auto store = std::make_shared<MemoryStore>();
    auto group = create(job(2), 0, store);
    const auto other = create(job(2), 1, store);
    require_ok(group->wait_ready(milliseconds(10000)));
    std::vector<float> data(1000, 1.0f);
    const WorkPtr work = group->all_reduce(buffer_of(data, DType::kFloat32), {});
    std::vector<std::thread> waiters;
    for (int i = 0; i < 3; ++i) {
      waiters.emplace_back([work] { require_contains(work->wait(), StatusCode::kAborted, {"was destroyed"}); });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200 * (round % 5)));
    group.reset();
    for (std::thread& waiter : waiters) waiter.join();
  }
}

TEST_P(Lifetime, OperationsThatNobodyWaitsForMayOutliveTheirWorks) {
  run_threads(job(2), [](Communicator& group, int rank) {
    std::vector<std::vector<int64_t>> data(300, std::vector<int64_t>(200, rank));
    for (auto& values : data) group.all_reduce(buffer_of(values, DType::kInt64), {});
    require_ok(group.barrier()->wait());
    for (const auto& values : data) require(values[0] == 1 && values[199] == 1, "a sum is missing");
  });
}

TEST_P(Lifetime, DestructionEndsWhatIsPending) {
  for (int round = 0; round < 10; ++round) {
    const auto store = std::make_shared<MemoryStore>();
    auto group = create(job(2), 0, store);
    const auto other = create(job(2), 1, store);
    std::vector<float> data(1 << 20, 1.0f), received(1 << 20), others(1 << 20);
    std::vector<WorkPtr> works;
    require_ok(group->wait_ready(milliseconds(10000)));
    // With the data of the first on its way, or not.
    if (round % 2 == 1) other->all_reduce(buffer_of(others, DType::kFloat32), {});
    for (int i = 0; i < 4; ++i) works.push_back(group->all_reduce(buffer_of(data, DType::kFloat32), {}));
    works.push_back(group->recv(buffer_of(received, DType::kFloat32), 1, 0));
    works.push_back(group->send(buffer_of(data, DType::kFloat32), 1, 7));
    group.reset();
    for (size_t i = 1; i < works.size(); ++i) {
      require(works[i]->is_completed(), "still open");
      require_contains(works[i]->wait(), StatusCode::kAborted, {"was destroyed"});
    }
    Status status;  // of the first operation that rank 0 has not finished
    for (int i = 0; i < 5 && status.ok(); ++i)
      status = other->all_reduce(buffer_of(others, DType::kFloat32), {})->wait();
    require_contains(status, StatusCode::kAborted, {"rank 0 reported"});
  }
}

// A group named "a/1" of rank 2 alone and a group "a" of ranks 1 and 2 are different groups.
TEST_P(Lifetime, NamesOfSplitsAreNotMixedUpWithTheirMembers) {
  Job three = job(3);
  three.timeout = milliseconds(5000);
  run_threads(three, [](Communicator& world, int rank) {
    const std::vector<int> alone = {2}, pair = {1, 2};
    std::shared_ptr<Communicator> single, both;
    if (rank == 2) single = *world.split(alone, "a/1");
    if (rank >= 1) {
      both = *world.split(pair, "a");
      std::vector<int64_t> one = {1};
      require_ok(both->all_reduce(buffer_of(one, DType::kInt64), {})->wait());
      require(one[0] == 2, "sum");
    }
    require_ok(world.barrier()->wait());
  });
}

std::shared_ptr<Communicator> create_on_host(const Job& job, int rank, const std::string& host) {
  Options options = options_of(job, rank);
  options.host_id = host;
  auto store = FileStore::open(job.directory);
  require_ok(store.status());
  auto group = Communicator::create(options, *store);
  require_ok(group.status());
  require_ok((*group)->wait_ready(milliseconds(20000)));
  return *std::move(group);
}

// Nobody has a link to it: they hear of it when they want one, on its way out and afterwards.
TEST(Leaving, IsTheReasonThatOthersAreGiven) {
  for (const bool is_one_host : {true, false}) {
    for (const milliseconds pause : {milliseconds(0), milliseconds(1500)}) {
      const Arrivals ready, told;
      run_processes({3}, [&](const Job& job, int rank) {
        auto group = create_on_host(job, rank, is_one_host ? "" : "host " + std::to_string(rank));
        if (rank == 1) {
          group.reset();
          return told.wait_for(2);
        }
        ready.arrive();
        ready.wait_for(2);
        std::this_thread::sleep_for(pause);
        const Status status = group->barrier()->wait();  // or the other was told first, and has told this one
        require(status.message().find("rank 1 (has ") != std::string::npos, status.to_string());
        told.arrive();
        told.wait_for(2);
      });
    }
  }
}

// Two hosts. Whoever opens a link asks for an address along the tree, whose inner ranks may be among those that are
// gone.
struct Ending {
  std::vector<int> stay;
  bool die;  // or leave
  milliseconds pause;
};
class Leavers : public ::testing::TestWithParam<Ending> {};

TEST_P(Leavers, LetTheOthersFindEachOther) {
  constexpr int kRanks = 8, kHosts = 2;
  const std::vector<int>& stay = GetParam().stay;
  const auto num_stay = static_cast<int>(stay.size());
  const Arrivals ready;
  run_processes({kRanks}, [&](const Job& job, int rank) {
    const auto world = create_on_host(job, rank, "host " + std::to_string(rank * kHosts / kRanks));
    ready.arrive();
    ready.wait_for(kRanks);
    const auto place = std::find(stay.begin(), stay.end(), rank);
    if (place == stay.end()) {
      if (GetParam().die) _exit(0);
      return;
    }
    const auto own_place = static_cast<int>(place - stay.begin());
    const auto group = world->split(stay, "those who stay");
    require_ok(group.status());
    std::this_thread::sleep_for(GetParam().pause);
    std::vector<WorkPtr> works;
    std::vector<std::vector<int32_t>> got(stay.size(), std::vector<int32_t>(1, -1));
    std::vector<int32_t> own(1, rank);
    for (int other = 0; other < num_stay; ++other) {
      if (other == own_place) continue;
      std::vector<int32_t>& from_it = got[static_cast<size_t>(other)];
      works.push_back((*group)->send(buffer_of(own, DType::kInt32), other, 0, milliseconds(8000)));
      works.push_back((*group)->recv(buffer_of(from_it, DType::kInt32), other, 0, milliseconds(8000)));
    }
    for (const WorkPtr& work : works) require_ok(work->wait());
    for (size_t other = 0; other < stay.size(); ++other) {
      if (stay[other] != rank) require(got[other][0] == stay[other], "wrong data");
    }
    ready.arrive();
    ready.wait_for(kRanks + num_stay);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, Leavers,
    ::testing::Values(Ending{{3, 5, 6}, false, milliseconds(0)}, Ending{{3, 5, 6}, false, milliseconds(2500)},
                      Ending{{3, 6}, false, milliseconds(2500)}, Ending{{0, 3, 5, 6}, true, milliseconds(1500)}),
    [](const auto& info) { return std::string(info.param.die ? "Die" : "Leave") + std::to_string(info.index); });

// A connection that cannot be accepted for want of a descriptor must not keep a thread busy.
TEST_P(Lifetime, WithoutDescriptorsItWaitsQuietly) {
  run_processes(job(2), [](const Job& job, int rank) {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(700));
    const auto group = connect(job, rank);
    if (rank == 0) {
      auto store = FileStore::open(job.directory);
      require_ok((*store)->get("qx.mccl/default//root/0", milliseconds(5000)).status());
      std::this_thread::sleep_for(milliseconds(100));
      rlimit before{};
      getrlimit(RLIMIT_NOFILE, &before);
      const rlimit none{3, before.rlim_max};
      setrlimit(RLIMIT_NOFILE, &none);
      std::this_thread::sleep_for(milliseconds(800));  // rank 1 comes meanwhile
      const std::clock_t cpu = std::clock();
      std::this_thread::sleep_for(milliseconds(500));
      const double busy_s = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
      require(busy_s < 0.25, "used " + std::to_string(busy_s) + " s of processor time in 0.5 s");
      setrlimit(RLIMIT_NOFILE, &before);
    }
    require_ok(group->barrier()->wait());
  });
}

}  // namespace
}  // namespace qx::collectives::testing
