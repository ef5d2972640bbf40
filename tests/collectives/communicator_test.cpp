#include "quincunx/collectives/communicator.h"

#include "collectives/ranks.h"

namespace qx::collectives::testing {
namespace {

struct Case {
  int world_size;
  bool shared_memory;
};

class Collectives : public ::testing::TestWithParam<Case> {
 protected:
  Job job() const { return {GetParam().world_size, GetParam().shared_memory}; }
};

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives,
                         ::testing::Values(Case{1, true}, Case{2, true}, Case{3, true}, Case{4, true}, Case{5, true},
                                           Case{8, true}, Case{2, false}, Case{3, false}, Case{4, false}),
                         [](const auto& info) {
                           return std::string(info.param.shared_memory ? "SharedMemory" : "Tcp") +
                                  std::to_string(info.param.world_size);
                         });

// Zero, one, ragged, inline, more than a frame, more than ring and window together.
const std::vector<int64_t> kCounts = {0, 1, 7, 1000, 2048, 2049, 40000, 300001};

// Distinct for each rank and place, and exact in float32 when summed over 8 ranks.
int32_t value_at(int rank, int64_t i) { return static_cast<int32_t>((i * 7 + rank * 131) % 1009); }

std::vector<int32_t> values(int rank, int64_t count) {
  std::vector<int32_t> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) result[static_cast<size_t>(i)] = value_at(rank, i);
  return result;
}

TEST_P(Collectives, AllReduceSumsEveryRank) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    for (const int64_t count : kCounts) {
      std::vector<int32_t> data = values(rank, count);
      require_ok(group->all_reduce(buffer_of(data, DType::kInt32), {})->wait());
      for (int64_t i = 0; i < count; ++i) {
        int32_t sum = 0;
        for (int r = 0; r < job.world_size; ++r) sum += value_at(r, i);
        require(data[static_cast<size_t>(i)] == sum, "element " + std::to_string(i) + " of " + std::to_string(count));
      }
    }
  });
}

TEST_P(Collectives, BroadcastFromEachRoot) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    for (const int64_t count : kCounts) {
      for (int root = 0; root < job.world_size; root += std::max(1, job.world_size - 1)) {
        std::vector<int32_t> data = values(rank, count);
        require_ok(group->broadcast(buffer_of(data, DType::kInt32), root)->wait());
        require(data == values(root, count), "broadcast of " + std::to_string(count));
      }
    }
  });
}

TEST_P(Collectives, ReduceWritesTheRootOnly) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    const int root = job.world_size - 1;
    for (const int64_t count : kCounts) {
      std::vector<int32_t> input = values(rank, count), output(static_cast<size_t>(count), -1);
      require_ok(
          group->reduce(buffer_of(input, DType::kInt32), buffer_of(output, DType::kInt32), root, {ReduceOp::kMax})
              ->wait());
      require(input == values(rank, count), "the input changed");
      for (int64_t i = 0; i < count; ++i) {
        int32_t largest = -1;
        for (int r = 0; r < job.world_size && rank == root; ++r) largest = std::max(largest, value_at(r, i));
        require(output[static_cast<size_t>(i)] == largest, "reduce of " + std::to_string(count));
      }
    }
  });
}

// Rank r contributes count + r elements.
TEST_P(Collectives, AllGatherAndGatherTakeUnevenSizes) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    for (const int64_t count : kCounts) {
      std::vector<int32_t> input = values(rank, count + rank);
      for (const int root : {-1, 0}) {
        std::vector<std::vector<int32_t>> parts;
        for (int r = 0; r < job.world_size; ++r) parts.emplace_back(static_cast<size_t>(count + r), -1);
        std::vector<Buffer> outputs;
        for (auto& part : parts) outputs.push_back(buffer_of(part, DType::kInt32));
        if (root >= 0 && rank != root) outputs.clear();
        const Buffer in = buffer_of(input, DType::kInt32);
        require_ok((root < 0 ? group->all_gather(in, outputs) : group->gather(in, outputs, root))->wait());
        for (int r = 0; r < job.world_size && !outputs.empty(); ++r) {
          require(parts[static_cast<size_t>(r)] == values(r, count + r), "part " + std::to_string(r));
        }
      }
    }
  });
}

TEST_P(Collectives, ScatterTakesUnevenSizes) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    for (const int64_t count : kCounts) {
      std::vector<std::vector<int32_t>> parts;
      std::vector<Buffer> inputs;
      for (int r = 0; r < job.world_size; ++r) parts.push_back(values(r, count + r));
      for (auto& part : parts) inputs.push_back(buffer_of(part, DType::kInt32));
      if (rank != 0) inputs.clear();
      std::vector<int32_t> output(static_cast<size_t>(count + rank), -1);
      require_ok(group->scatter(inputs, buffer_of(output, DType::kInt32), 0)->wait());
      require(output == values(rank, count + rank), "scatter of " + std::to_string(count));
    }
  });
}

TEST_P(Collectives, ReduceScatterTakesUnevenSizes) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    for (const int64_t count : kCounts) {
      std::vector<std::vector<int32_t>> parts;
      std::vector<Buffer> inputs;
      for (int r = 0; r < job.world_size; ++r) parts.push_back(values(rank + r, count + r));
      for (auto& part : parts) inputs.push_back(buffer_of(part, DType::kInt32));
      std::vector<int32_t> output(static_cast<size_t>(count + rank), -1);
      require_ok(group->reduce_scatter(inputs, buffer_of(output, DType::kInt32), {})->wait());
      for (int64_t i = 0; i < count + rank; ++i) {
        int32_t sum = 0;
        for (int r = 0; r < job.world_size; ++r) sum += value_at(r + rank, i);
        require(output[static_cast<size_t>(i)] == sum, "reduce_scatter of " + std::to_string(count));
      }
    }
  });
}

// Rank a sends (a + 2 b) % 3 times count elements to rank b: some pairs exchange nothing.
TEST_P(Collectives, AllToAllTakesUnevenAndEmptySizes) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    for (const int64_t count : kCounts) {
      const auto size = [&](int from, int to) { return (from + 2 * to) % 3 * count; };
      std::vector<std::vector<int32_t>> in, out;
      std::vector<Buffer> inputs, outputs;
      for (int r = 0; r < job.world_size; ++r) {
        in.push_back(values(rank * 10 + r, size(rank, r)));
        out.emplace_back(static_cast<size_t>(size(r, rank)), -1);
      }
      for (auto& part : in) inputs.push_back(buffer_of(part, DType::kInt32));
      for (auto& part : out) outputs.push_back(buffer_of(part, DType::kInt32));
      require_ok(group->all_to_all(inputs, outputs)->wait());
      for (int r = 0; r < job.world_size; ++r) {
        require(out[static_cast<size_t>(r)] == values(r * 10 + rank, size(r, rank)), "from " + std::to_string(r));
      }
    }
  });
}

TEST_P(Collectives, BarrierWaitsForTheLastRank) {
  const Arrivals last;
  run_processes(job(), [&](const Job& job, int rank) {
    auto group = connect(job, rank);
    require_ok(group->wait_ready({}));
    require_ok(group->barrier()->wait());
    if (rank == job.world_size - 1) {
      std::this_thread::sleep_for(milliseconds(200));
      last.arrive();
    }
    require_ok(group->barrier()->wait());
    require(last.count() == 1, "the barrier did not wait");
  });
}

TEST_P(Collectives, ManySmallOperationsKeepTheirOrder) {
  run_processes(job(), [](const Job& job, int rank) {
    auto group = connect(job, rank);
    for (int round = 0; round < 300; ++round) {
      std::vector<int64_t> first = {round + rank}, second = {rank};
      const WorkPtr a = group->all_reduce(buffer_of(first, DType::kInt64), {ReduceOp::kMax});
      const WorkPtr b = group->all_reduce(buffer_of(second, DType::kInt64), {});
      require_ok(b->wait());
      require(a->is_completed(), "the second ended before the first");
      require(first[0] == round + job.world_size - 1, "maximum");
      require(second[0] == job.world_size * (job.world_size - 1) / 2, "sum");
    }
  });
}

}  // namespace
}  // namespace qx::collectives::testing
