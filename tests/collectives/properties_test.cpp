// Every operation over dtypes, sizes and worlds against float64, and the bits of sums that are not exact.
#include "collectives/properties.h"

namespace qx::collectives::testing {
namespace {

constexpr Operation kOperations[] = {Operation::kBarrier, Operation::kBroadcast,     Operation::kAllReduce,
                                     Operation::kReduce,  Operation::kAllGather,     Operation::kGather,
                                     Operation::kScatter, Operation::kReduceScatter, Operation::kAllToAll};
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUInt8, DType::kFloat64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

struct World {
  int size;
  bool shared_memory;
};

class Properties : public ::testing::TestWithParam<World> {
 protected:
  Job job() const { return {GetParam().size, GetParam().shared_memory}; }
};

INSTANTIATE_TEST_SUITE_P(Worlds, Properties,
                         ::testing::Values(World{1, true}, World{2, true}, World{3, true}, World{4, true},
                                           World{5, true}, World{6, true}, World{7, true}, World{8, true},
                                           World{9, true}, World{16, true}, World{17, true}, World{33, true},
                                           World{3, false}, World{9, false}),
                         [](const auto& info) {
                           return std::string(info.param.shared_memory ? "SharedMemory" : "Tcp") +
                                  std::to_string(info.param.size);
                         });

// Zero, one, ragged, inline, several frames or pieces; less of them where there are more ranks.
std::vector<int64_t> counts_of(int world_size) {
  std::vector<int64_t> counts = {0, 1, 7, 513, 3000};
  if (world_size <= 9) counts.push_back(20001);
  if (world_size <= 3) counts.push_back(200003);
  return counts;
}

TEST_P(Properties, EveryOperationOnOrdinaryMemory) {
  run_threads(job(), [](Communicator& group, int) {
    const int world = group.options().world_size;
    int turn = 0;
    for (const Operation operation : kOperations) {
      for (const int64_t count : counts_of(world)) {
        ++turn;
        const int variant = turn % 2;
        require_property(group,
                         {operation, kDTypes[turn % 5], kOps[turn % 3], count, variant == 1, false, variant == 0},
                         turn % world);
      }
    }
  });
}

// Odd ranks have ordinary memory in one of two rounds: each pair decides for itself.
TEST_P(Properties, EveryOperationOnAllocatedMemory) {
  run_threads(job(), [](Communicator& group, int rank) {
    const int world = group.options().world_size;
    int turn = 0;
    for (const Operation operation : kOperations) {
      for (const int64_t count : counts_of(world)) {
        ++turn;
        const bool allocated = turn % 2 == 0 || rank % 2 == 0;
        const bool in_place = (turn / 2) % 2 == 0;
        require_property(group, {operation, kDTypes[turn % 5], kOps[turn % 3], count, !in_place, allocated, in_place},
                         turn % world);
      }
    }
  });
}

TEST(InPlace, LargeAllocatedBuffersAreReadWhereTheyLie) {
  run_processes({3, true}, [](const Job& job, int rank) {
    auto group = connect(job, rank);
    const auto in_place_bytes = [&] {
      const std::string text = group->statistics_json(), key = "\"bytes_read_in_place\": ";
      return std::atoll(text.c_str() + text.find(key) + key.size());
    };
    constexpr int64_t kCount = 300000, kBytes = kCount * 4;
    require_property(*group, {Operation::kAllReduce, DType::kFloat32, ReduceOp::kSum, kCount, false, false}, 0);
    require_property(*group, {Operation::kAllReduce, DType::kFloat32, ReduceOp::kSum, 100, false, true}, 0);
    require(in_place_bytes() == 0, "ordinary memory and small messages are sent");
    require_property(*group, {Operation::kBroadcast, DType::kFloat32, ReduceOp::kSum, kCount, false, true}, 0);
    require(in_place_bytes() == (rank == 0 ? 0 : kBytes), "broadcast");
    require_property(*group, {Operation::kAllGather, DType::kFloat32, ReduceOp::kSum, kCount, false, true, true}, 0);
    require(in_place_bytes() == (rank == 0 ? 2 : 3) * kBytes, "all_gather");
    const int64_t before = in_place_bytes();
    require_property(*group, {Operation::kAllReduce, DType::kFloat32, ReduceOp::kSum, kCount, false, true}, 0);
    // A third from each of two peers to reduce it, and two thirds of the result.
    require(std::abs(in_place_bytes() - before - kBytes * 4 / 3) < 1024, "all_reduce");
  });
}

// Sums that round: the order of ranks gives the bits, on all ranks and at every size, but for large messages between
// hosts, which algorithms/two_levels_test.cpp looks at.
TEST_P(Properties, SumsHaveTheBitsOfTheOrderOfRanks) {
  const int world = GetParam().size;
  for (const bool allocated : {false, true}) {
    for (const int64_t count : {int64_t{3}, int64_t{2000}, int64_t{world <= 9 ? 40007 : 4001}}) {
      std::vector<std::vector<float>> inputs;
      for (int r = 0; r < world; ++r) {
        std::mt19937 random(static_cast<unsigned>(r));
        std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
        inputs.emplace_back();
        for (int64_t i = 0; i < count; ++i) inputs.back().push_back(uniform(random));
      }
      std::vector<float> expected = inputs[0];
      for (int r = 1; r < world; ++r) {
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += inputs[static_cast<size_t>(r)][i];
      }
      run_threads(job(), [&](Communicator& group, int rank) {
        std::vector<float> ordinary = inputs[static_cast<size_t>(rank)];
        std::shared_ptr<void> shared = *group.allocate(count * 4);
        if (world > 8 && !group.options().allow_shared_memory && count > 2000) return;
        void* data = allocated ? shared.get() : ordinary.data();
        if (allocated) std::memcpy(data, ordinary.data(), ordinary.size() * 4);
        require_ok(group.all_reduce({data, count, DType::kFloat32}, {})->wait());
        require(std::memcmp(data, expected.data(), expected.size() * 4) == 0,
                "the sum of " + std::to_string(count) + " has other bits on rank " + std::to_string(rank));
      });
    }
  }
}

}  // namespace
}  // namespace qx::collectives::testing
