// Point-to-point messages, groups that are split from groups, and many threads: as processes and as threads of one
// process, which is what the sanitizers look at.
#include <atomic>

#include "collectives/ranks.h"

namespace qx::collectives::testing {
namespace {

class Groups : public ::testing::TestWithParam<bool> {
 protected:
  Job job(int world_size) const { return {world_size, GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Transports, Groups, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Tcp"; });

std::vector<int32_t> numbers(int seed, int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = static_cast<int32_t>(seed * 7919 + i);
  return values;
}

const std::vector<int64_t> kSizes = {0, 1, 2048, 2049, 500000};

TEST_P(Groups, SendAndReceiveKeepTheOrderOfEachTag) {
  run_threads(job(2), [](Communicator& group, int rank) {
    for (const int64_t size : kSizes) {
      std::vector<int32_t> a = numbers(1, size), b = numbers(2, size), c = numbers(3, size);
      if (rank == 0) {
        require_ok(group.send(buffer_of(a, DType::kInt32), 1, 5)->wait());
        require_ok(group.send(buffer_of(b, DType::kInt32), 1, 5)->wait());
        require_ok(group.send(buffer_of(c, DType::kInt32), 1, 6)->wait());
      } else {
        std::vector<int32_t> first(a.size()), second(a.size()), other(a.size());
        const WorkPtr tagged = group.recv(buffer_of(other, DType::kInt32), 0, 6);
        const WorkPtr one = group.recv(buffer_of(first, DType::kInt32), 0, 5);
        const WorkPtr two = group.recv(buffer_of(second, DType::kInt32), -1, 5);
        require_ok(two->wait());
        require_ok(one->wait());
        require_ok(tagged->wait());
        require(first == a && second == b && other == c && two->source_rank() == 0, "messages");
      }
    }
  });
}

TEST_P(Groups, AReceiveCompletesWithoutAWait) {
  run_threads(job(2), [](Communicator& group, int rank) {
    std::vector<int32_t> data(300000, rank);
    if (rank == 0) {
      std::this_thread::sleep_for(milliseconds(100));
      require_ok(group.send(buffer_of(data, DType::kInt32), 1, 0)->wait());
      return;
    }
    const WorkPtr work = group.recv(buffer_of(data, DType::kInt32), -1, 0);
    for (int i = 0; i < 1000 && !work->is_completed(); ++i) std::this_thread::sleep_for(milliseconds(5));
    require(work->is_completed() && data[299999] == 0, "the receive did not complete by itself");
  });
}

TEST_P(Groups, SendAndReceiveOfDifferentSizesFail) {
  run_threads(job(2), [](Communicator& group, int rank) {
    std::vector<int32_t> data(rank == 0 ? 4000 : 3000, rank);
    const Buffer buffer = buffer_of(data, DType::kInt32);
    require_contains((rank == 0 ? group.send(buffer, 1, 0) : group.recv(buffer, 0, 0))->wait(),
                     StatusCode::kInvalidArgument, {"send(int32[4000]", "recv(int32[3000]"});
    require_ok(group.barrier()->wait());
  });
}

TEST_P(Groups, ReceiveFromAnyRankTellsTheSource) {
  run_threads(job(4), [](Communicator& group, int rank) {
    if (rank != 0) {
      std::vector<int32_t> data = {rank * 10};
      return require_ok(group.send(buffer_of(data, DType::kInt32), 0, 1)->wait());
    }
    int seen = 0;
    for (int i = 0; i < 3; ++i) {
      std::vector<int32_t> data = {0};
      const WorkPtr work = group.recv(buffer_of(data, DType::kInt32), -1, 1);
      require_ok(work->wait());
      require(data[0] == work->source_rank() * 10, "source");
      seen |= 1 << work->source_rank();
    }
    require(seen == 0b1110, "a rank was not heard");
  });
}

TEST_P(Groups, SplitGroupsWorkBesideTheirParent) {
  run_threads(job(4), [](Communicator& world, int rank) {
    const std::vector<int> members = rank % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{1, 3};
    const auto half = world.split(members, rank % 2 == 0 ? "even" : "odd");
    require_ok(half.status());
    require((*half)->options().world_size == 2, "size");
    require((*half)->options().rank == (rank == 2 || rank == 1 ? 0 : 1), "the members' order gives the ranks");
    for (int round = 0; round < 20; ++round) {
      std::vector<int64_t> a = {rank}, b = {rank};
      const WorkPtr first = world.all_reduce(buffer_of(a, DType::kInt64), {});
      const WorkPtr second = (*half)->all_reduce(buffer_of(b, DType::kInt64), {});
      require_ok(second->wait());
      require_ok(first->wait());
      require(a[0] == 6 && b[0] == (rank % 2 == 0 ? 2 : 4), "sums");
    }
  });
}

TEST_P(Groups, TwoSplitsWithOneNameAreTwoGroups) {
  run_threads(job(2), [](Communicator& world, int rank) {
    const std::vector<int> all = {0, 1};
    auto first = world.split(all, "same"), second = world.split(all, "same");
    std::vector<int64_t> a = {rank}, b = {rank + 10};
    const WorkPtr one = (*first)->all_reduce(buffer_of(a, DType::kInt64), {});
    const WorkPtr two = (*second)->all_reduce(buffer_of(b, DType::kInt64), {});
    require_ok(two->wait());
    require_ok(one->wait());
    require(a[0] == 1 && b[0] == 21, "groups are mixed up");
  });
}

TEST_P(Groups, ManyThreadsUseManyGroupsAtOnce) {
  run_threads(job(3), [](Communicator& world, int rank) {
    const std::vector<int> all = {0, 1, 2};
    std::vector<std::shared_ptr<Communicator>> groups;
    for (int g = 0; g < 4; ++g) groups.push_back(*world.split(all, "g" + std::to_string(g)));
    std::vector<std::thread> threads;
    for (int g = 0; g < 4; ++g) {
      threads.emplace_back([&, g] {
        for (int round = 0; round < 10; ++round) {
          // Sizes on both sides of the inline limit, and more than a window.
          std::vector<int32_t> data = numbers(rank, round % 3 == 0 ? 3 : round % 3 == 1 ? 5000 : 250000);
          require_ok(groups[static_cast<size_t>(g)]->all_reduce(buffer_of(data, DType::kInt32), {})->wait());
          require(data.back() == 3 * 7919 + 3 * static_cast<int32_t>(data.size() - 1), "sum");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(Groups, CallbacksRunOnceWithTheStatus) {
  run_threads(job(2), [](Communicator& group, int rank) {
    std::atomic<int> calls{0};
    std::vector<float> data(100000, static_cast<float>(rank));
    const WorkPtr work = group.all_reduce(buffer_of(data, DType::kFloat32), {});
    work->on_completion([&](const Status& status) { calls += status.ok() ? 1 : 100; });
    require_ok(work->wait());
    for (int i = 0; i < 1000 && calls == 0; ++i) std::this_thread::sleep_for(milliseconds(1));
    require(calls == 1, "calls");
    work->on_completion([&](const Status&) { ++calls; });
    require(calls == 2, "a callback that is set after the end runs at once");
  });
}

TEST_P(Groups, GroupsComeAndGo) {
  run_threads(job(3), [](Communicator& world, int) {
    const std::vector<int> all = {2, 1, 0};
    for (int round = 0; round < 20; ++round) {
      auto group = world.split(all, "short");
      std::vector<int64_t> one = {1};
      require_ok((*group)->all_reduce(buffer_of(one, DType::kInt64), {})->wait());
      require(one[0] == 3, "sum");
    }
  });
}

}  // namespace
}  // namespace qx::collectives::testing
