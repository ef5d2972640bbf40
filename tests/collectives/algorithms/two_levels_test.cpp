// Groups that span hosts: the right values on every layout, the same bits on every rank and run, few links, and the
// same names in errors as on one host. A host of its own is what Options::host_id makes.
#include <set>

#include "collectives/properties.h"

namespace qx::collectives::testing {
namespace {

// hosts[r] is the host of rank r.
using Hosts = std::vector<int>;

Options options_on(const Hosts& hosts, int rank) {
  Options options;
  options.rank = rank;
  options.world_size = static_cast<int>(hosts.size());
  options.timeout = milliseconds(20000);
  options.host_id = "host " + std::to_string(hosts[static_cast<size_t>(rank)]);
  return options;
}

void run_on(const Hosts& hosts, const std::function<void(Communicator&, int rank)>& body) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    threads.emplace_back([&, rank] {
      auto group = Communicator::create(options_on(hosts, rank), store);
      require_ok(group.status());
      body(**group, rank);
      // Nobody leaves while others still count its links.
      require_ok((*group)->barrier()->wait());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int64_t number_in(const std::string& text, const std::string& key) {
  const std::string quoted = "\"" + key + "\": ";
  return std::atoll(text.c_str() + text.find(quoted) + quoted.size());
}

std::vector<float> fractions(int rank, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(uniform(random));
  return values;
}

class TwoLevels : public ::testing::TestWithParam<Hosts> {};

INSTANTIATE_TEST_SUITE_P(Layouts, TwoLevels,
                         ::testing::Values(Hosts{0, 0, 1, 1}, Hosts{0, 0, 0, 1, 1, 1}, Hosts{0, 0, 0, 1},
                                           Hosts{0, 1, 2, 3}, Hosts{0, 0, 0, 0, 1, 1, 1, 1}, Hosts{0, 1, 0, 1, 1, 2},
                                           Hosts{0, 1, 2, 0, 1, 2, 0, 1, 2, 0}, Hosts{0, 1, 2, 3, 4, 5, 6, 7, 8}),
                         [](const auto& info) {
                           std::string name = "Hosts";
                           for (const int host : info.param) name += std::to_string(host);
                           return name;
                         });

TEST_P(TwoLevels, EveryOperationGivesTheRightValues) {
  constexpr Operation kOperations[] = {Operation::kBarrier, Operation::kBroadcast,     Operation::kAllReduce,
                                       Operation::kReduce,  Operation::kAllGather,     Operation::kGather,
                                       Operation::kScatter, Operation::kReduceScatter, Operation::kAllToAll};
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUInt8, DType::kFloat64};
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};
  run_on(GetParam(), [&](Communicator& group, int rank) {
    const int world = group.options().world_size;
    int turn = 0;
    for (const Operation operation : kOperations) {
      for (const int64_t count : {0, 1, 7, 513, 3000, 20001, 70003}) {
        ++turn;
        const bool uneven = turn % 2 == 1, in_place = !uneven && (turn / 2) % 2 == 1;
        const bool allocated = (turn / 3 + rank) % 2 == 1;
        require_property(group, {operation, kDTypes[turn % 5], kOps[turn % 3], count, uneven, allocated, in_place},
                         turn % world);
      }
    }
  });
}

// Every operation is the group's first one, which also tells who shares a host.
TEST_P(TwoLevels, ALargeFirstOperationIsRight) {
  for (const Operation operation : {Operation::kAllReduce, Operation::kBroadcast, Operation::kReduceScatter}) {
    run_on(GetParam(), [&](Communicator& group, int) {
      require_property(group, {operation, DType::kInt64, ReduceOp::kSum, 30001, true}, 1);
    });
  }
}

TEST_P(TwoLevels, SumsThatRoundHaveTheSameBitsOnAllRanksAndRuns) {
  constexpr int64_t kCount = 20011;
  const size_t world = GetParam().size();
  std::vector<double> exact(kCount, 0.0);
  for (size_t r = 0; r < world; ++r) {
    const std::vector<float> values = fractions(static_cast<int>(r), kCount);
    for (size_t i = 0; i < values.size(); ++i) exact[i] += values[i];
  }
  std::vector<std::vector<float>> results(2 * world);
  for (size_t run = 0; run < 2; ++run) {
    run_on(GetParam(), [&](Communicator& group, int rank) {
      std::vector<float> values = fractions(rank, kCount);
      require_ok(group.all_reduce(buffer_of(values, DType::kFloat32), {})->wait());
      results[run * world + static_cast<size_t>(rank)] = std::move(values);
    });
  }
  for (size_t i = 0; i < static_cast<size_t>(kCount); ++i) {
    // Each of the additions rounds once: half a unit in the last place of a partial sum, which is less than `world`.
    const double bound = static_cast<double>(world * world) * 0x1p-24;
    ASSERT_NEAR(results[0][i], exact[i], bound) << i;
  }
  for (size_t r = 1; r < results.size(); ++r) EXPECT_EQ(results[r], results[0]) << "rank or run " << r;
}

// 1 + 2^-9 is between two numbers of bfloat16: rounded on each host, the small parts of the sum would be lost.
TEST_P(TwoLevels, NarrowTypesAreRoundedOnceAndAveragesDividedOnce) {
  const auto world = static_cast<int>(GetParam().size());
  run_on(GetParam(), [&](Communicator& group, int rank) {
    constexpr size_t kCount = 20000;
    std::vector<uint16_t> values(kCount, rank == 0 ? 0x3f80 : 0x3b00);  // 1.0 and 2^-9
    const auto expected = [&](double value) {
      const auto rounded = static_cast<float>(value);
      uint32_t bits;
      std::memcpy(&bits, &rounded, 4);
      return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    };
    std::vector<uint16_t> sum = values;
    require_ok(group.all_reduce(buffer_of(sum, DType::kBFloat16), {})->wait());
    const double total = 1.0 + (world - 1) * 0x1p-9;
    require(sum == std::vector<uint16_t>(kCount, expected(total)), "the sum is rounded more than once");
    std::vector<uint16_t> mean = values;
    require_ok(group.all_reduce(buffer_of(mean, DType::kBFloat16), {ReduceOp::kAverage})->wait());
    const auto divided = static_cast<float>(total) / static_cast<float>(world);
    require(mean == std::vector<uint16_t>(kCount, expected(divided)), "the average");
    std::vector<int32_t> whole(kCount, rank == 0 ? -7 : -1);
    require_ok(group.all_reduce(buffer_of(whole, DType::kInt32), {ReduceOp::kAverage})->wait());
    require(whole == std::vector<int32_t>(kCount, -(world + 6) / world), "the average of integers");
    std::vector<float> scaled(kCount, 2.0f);
    require_ok(group.all_reduce(buffer_of(scaled, DType::kFloat32), {ReduceOp::kPreMulSum, 0.25})->wait());
    require(scaled == std::vector<float>(kCount, 0.5f * static_cast<float>(world)), "each is multiplied once");
  });
}

TEST_P(TwoLevels, AnotherCallOfAnyRankIsNamedOnAll) {
  const auto world = static_cast<int>(GetParam().size());
  run_on(GetParam(), [&](Communicator& group, int rank) {
    for (int odd = 1; odd < world; ++odd) {
      std::vector<float> data(rank == odd ? 30001 : 30000, 1.0f);
      require_contains(group.all_reduce(buffer_of(data, DType::kFloat32), {})->wait(), StatusCode::kInvalidArgument,
                       {"rank 0 called all_reduce(float32[30000], SUM)",
                        "rank " + std::to_string(odd) + " called all_reduce(float32[30001], SUM)"});
      require_property(group, {Operation::kAllReduce, DType::kFloat32, ReduceOp::kSum, 20001}, 0);
    }
  });
}

TEST(TwoLevelGroups, SubGroupsThatSpanPartOfTheHostsWork) {
  run_on({0, 0, 0, 1, 1, 1, 2, 2}, [](Communicator& group, int rank) {
    for (const std::vector<int>& members : {std::vector<int>{7, 1, 4, 2, 0}, {3, 6}, {0, 1, 2}, {5, 4, 3, 2, 1, 0}}) {
      if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
      auto part = group.split(members, "part");
      require_ok(part.status());
      for (const Operation operation : {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather}) {
        for (const int64_t count : {3, 30001}) {
          require_property(**part, {operation, DType::kFloat64, ReduceOp::kSum, count, true}, 0);
        }
      }
      require_ok((*part)->barrier()->wait());
    }
  });
}

// Large messages of 32 ranks need the links of the tree and of two rings.
void expect_few_links(const Hosts& hosts, int64_t most_tcp) {
  run_on(hosts, [&](Communicator& group, int rank) {
    for (const Operation operation : {Operation::kAllReduce, Operation::kBroadcast, Operation::kReduce,
                                      Operation::kAllGather, Operation::kReduceScatter}) {
      require_property(group, {operation, DType::kFloat32, ReduceOp::kSum, 20001}, 3);
    }
    const int64_t links = number_in(group.statistics_json(), "tcp_peers");
    require(links <= most_tcp, "rank " + std::to_string(rank) + " has " + std::to_string(links) + " TCP links");
    require_ok(group.barrier()->wait());
  });
}

TEST(TwoLevelGroups, LargeMessagesNeedFewLinksBetweenHosts) {
  Hosts hosts;
  for (int r = 0; r < 32; ++r) hosts.push_back(r / 8);
  // The tree of the first call is that of one host: up to five links. Then the ring, and the tree of four hosts.
  expect_few_links(hosts, 5 + 2 + 2);
}

TEST(TwoLevelGroups, LargeMessagesNeedFewLinksWhereEachRankIsAHost) {
  Hosts hosts;
  for (int r = 0; r < 32; ++r) hosts.push_back(r);
  expect_few_links(hosts, 5 + 4);
}

void run_processes_on(const Hosts& hosts, const std::function<void(Communicator&, int rank)>& body,
                      const std::vector<int>& expected = {}) {
  run_processes(
      {.world_size = static_cast<int>(hosts.size())},
      [&](const Job& job, int rank) {
        auto store = FileStore::open(job.directory);
        require_ok(store.status());
        auto group = Communicator::create(options_on(hosts, rank), *store);
        require_ok(group.status());
        body(**group, rank);
      },
      expected);
}

const Hosts kTwoHosts = {0, 0, 0, 1, 1, 1};

TEST(TwoLevelFaults, ARankOfAnotherHostThatIsLateIsNamedAlone) {
  constexpr int kLate = 3;
  const Arrivals told;
  run_processes_on(kTwoHosts, [&](Communicator& group, int rank) {
    std::vector<float> data(60000, 1.0f);
    require_ok(group.all_reduce(buffer_of(data, DType::kFloat32), {})->wait());
    if (rank == kLate) return told.wait_for(5);
    const Status status = group.all_reduce(buffer_of(data, DType::kFloat32), {}, milliseconds(500))->wait();
    const std::string name = "rank " + std::to_string(kLate) + " (not entered; its last was all_reduce #0)";
    require_contains(status, StatusCode::kDeadlineExceeded, {"all_reduce #1", name});
    for (int r = 0; r < 6; ++r) {
      const bool is_named = status.message().find("rank " + std::to_string(r) + " (") != std::string::npos;
      require(is_named == (r == kLate), "rank " + std::to_string(r) + " in: " + status.message());
    }
    told.arrive();
  });
}

TEST(TwoLevelFaults, ARankThatDiesIsNamedOnAllHosts) {
  for (const int victim : {1, 4}) {
    std::vector<int> expected(6, 0);
    expected[static_cast<size_t>(victim)] = -SIGKILL;
    run_processes_on(
        kTwoHosts,
        [&](Communicator& group, int rank) {
          std::vector<float> data(60000, 1.0f);
          require_ok(group.all_reduce(buffer_of(data, DType::kFloat32), {})->wait());
          if (rank == victim) kill(getpid(), SIGKILL);
          const auto start = std::chrono::steady_clock::now();
          const Status status = group.all_reduce(buffer_of(data, DType::kFloat32), {})->wait();
          require_contains(status, StatusCode::kUnavailable,
                           {"rank " + std::to_string(victim) + " (died: its process "});
          require(std::chrono::steady_clock::now() - start < std::chrono::seconds(2), "late");
        },
        expected);
  }
}

// Stopped after its call has been seen, in the midst of the data.
TEST(TwoLevelFaults, ARankThatStopsWithinAnOperationIsNamedByAll) {
  const Arrivals told;
  run_processes_on(kTwoHosts, [&](Communicator& group, int rank) {
    std::vector<float> data(6 << 20, 1.0f);
    std::vector<float> small(8, 1.0f);
    require_ok(group.all_reduce(buffer_of(small, DType::kFloat32), {})->wait());
    if (rank == 4) {
      auto work = group.all_reduce(buffer_of(data, DType::kFloat32), {});
      std::this_thread::sleep_for(milliseconds(10));
      stop_this_process(told, 5);
      (void)work->wait();  // its memory is read until it has ended, well or not
      return;
    }
    const Status status = group.all_reduce(buffer_of(data, DType::kFloat32), {}, milliseconds(800))->wait();
    told.arrive();
    if (status.ok()) return;  // it had handed on everything before it stopped
    require_contains(status, StatusCode::kDeadlineExceeded, {"rank 4 ("});
  });
}

}  // namespace
}  // namespace qx::collectives::testing
