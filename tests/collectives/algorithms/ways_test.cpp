#include "quincunx/collectives/algorithms/ways.h"

#include <numeric>

#include "tests/collectives/ranks.h"

namespace qx::collectives {
namespace {

using namespace testing;

TEST(Ways, LargeMovesFromOneRankToManyAreTheSystems) {
  EXPECT_EQ(peer_memory_bytes(Operation::kBroadcast, 3), 1 << 20);
  EXPECT_EQ(peer_memory_bytes(Operation::kScatter, 8), 2 << 20);
  for (const Operation operation : {Operation::kBroadcast, Operation::kScatter}) {
    EXPECT_EQ(peer_memory_bytes(operation, 2), kNeverBytes) << operation_name(operation);
  }
  for (const Operation operation : {Operation::kAllReduce, Operation::kReduce, Operation::kReduceScatter,
                                    Operation::kAllGather, Operation::kAllToAll, Operation::kGather}) {
    EXPECT_EQ(peer_memory_bytes(operation, 8), kNeverBytes) << operation_name(operation);
  }
  EXPECT_EQ(largest_flat_group(), 8);
}

TEST(Ways, GroupsThatSpanHostsGoInTwoLevels) {
  const auto layout = [](std::vector<uint32_t> hosts) { return HostLayout(hosts); };
  const HostLayout two_of_two = layout({1, 1, 2, 2}), four_alone = layout({0, 0, 0, 0});
  const HostLayout nine_alone(std::vector<uint32_t>(9, 0));
  const Call large{Operation::kAllReduce, DType::kFloat32, {}, -1, 2049, {}};
  const Call small{Operation::kAllReduce, DType::kFloat32, {}, -1, 2048, {}};
  EXPECT_TRUE(takes_two_levels(large, two_of_two, false));
  EXPECT_FALSE(takes_two_levels(small, two_of_two, false));
  EXPECT_TRUE(takes_two_levels(small, two_of_two, true));
  EXPECT_FALSE(takes_two_levels(large, four_alone, false));
  EXPECT_TRUE(takes_two_levels(large, nine_alone, true));
  EXPECT_FALSE(takes_two_levels(large, HostLayout(9), true));
  EXPECT_FALSE(takes_two_levels({Operation::kAllToAll, DType::kFloat32, {}, -1, 4096, {}}, two_of_two, true));
  EXPECT_FALSE(gathers_calls(HostLayout(8)));
  EXPECT_TRUE(gathers_calls(HostLayout(9)));
  EXPECT_FALSE(gathers_calls(two_of_two));
  EXPECT_TRUE(gathers_calls(layout({1, 1, 1, 2, 2, 2})));
  EXPECT_FALSE(gathers_calls(HostLayout(std::vector<uint32_t>(8, 0))));
}

class Forced : public ::testing::TestWithParam<int> {
 protected:
  ~Forced() override {
    forced_ways().peer_memory_bytes = -1;
    forced_ways().largest_flat_group = -1;
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, Forced, ::testing::Values(2, 3), ::testing::PrintToStringParamName());

// Small whole numbers, whose sums are exact.
float value(int rank, size_t index) { return static_cast<float>((index * 7 + static_cast<size_t>(rank) * 13) % 101); }

std::vector<float> values_of(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value(rank, i);
  return values;
}

void check_all(Communicator& group, size_t count) {
  const int size = group.options().world_size;
  const int rank = group.options().rank;
  const auto buffer = [](std::vector<float>& values) { return buffer_of(values, DType::kFloat32); };
  const auto sum = [&](size_t i) {
    float total = 0;
    for (int r = 0; r < size; ++r) total += value(r, i);
    return total;
  };
  std::vector<float> own = values_of(rank, count);
  require_ok(group.all_reduce(buffer(own), {})->wait());
  for (size_t i = 0; i < count; ++i) require(own[i] == sum(i), "all_reduce at " + std::to_string(i));

  own = values_of(rank, count);
  std::vector<float> result(count);
  require_ok(group.reduce(buffer(own), rank == 1 ? buffer(result) : Buffer{}, 1, {})->wait());
  for (size_t i = 0; i < count && rank == 1; ++i) require(result[i] == sum(i), "reduce at " + std::to_string(i));

  std::vector<std::vector<float>> parts(static_cast<size_t>(size), std::vector<float>(count));
  std::vector<Buffer> outputs;
  for (auto& part : parts) outputs.push_back(buffer(part));
  require_ok(group.all_gather(buffer(own), outputs)->wait());
  for (int r = 0; r < size; ++r) require(parts[static_cast<size_t>(r)] == values_of(r, count), "all_gather");
  require_ok(group.reduce_scatter(outputs, buffer(result), {})->wait());
  for (size_t i = 0; i < count; ++i) {
    require(result[i] == static_cast<float>(size) * value(rank, i), "reduce_scatter at " + std::to_string(i));
  }
  result = rank == 0 ? values_of(5, count) : std::vector<float>(count);
  require_ok(group.broadcast(buffer(result), 0)->wait());
  require(result == values_of(5, count), "broadcast");
}

TEST_P(Forced, TheSystemsCopiesGiveTheSameBytes) {
  forced_ways().peer_memory_bytes = 1;
  EXPECT_EQ(peer_memory_bytes(Operation::kAllReduce, 8), kNeverBytes) << "what is reduced goes through rings";
  run_processes({.world_size = GetParam()}, [](const Job& job, int rank) {
    const auto group = connect(job, rank);
    for (const size_t count : {size_t{1}, size_t{30011}, size_t{300007}}) check_all(*group, count);
  });
}

TEST_P(Forced, CallsThroughATreeGiveTheSameBytes) {
  forced_ways().largest_flat_group = 1;
  run_processes({.world_size = GetParam()}, [](const Job& job, int rank) {
    const auto group = connect(job, rank);
    for (const size_t count : {size_t{1}, size_t{3}, size_t{30011}}) check_all(*group, count);
  });
}

}  // namespace
}  // namespace qx::collectives
