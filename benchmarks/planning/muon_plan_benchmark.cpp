// Time to plan a model on grids of up to 4096 ranks.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "quincunx/planning/muon_plan.h"

namespace {

// `layers` transformer layers of width 1024: four square matrices and two of the feed-forward network.
std::vector<qx::planning::MuonTensor> transformer(int64_t layers, int64_t replicas, int64_t shards) {
  constexpr int64_t kWidth = 1024;
  std::vector<qx::planning::MuonTensor> tensors;
  for (int64_t i = 0; i < 6 * layers; ++i) {
    const int64_t rows = i % 6 < 4 ? kWidth : 4 * kWidth;
    qx::planning::MuonTensor tensor{.name = std::to_string(i), .rows = rows, .columns = kWidth, .boxes = {}};
    const int64_t chunk = (rows + shards - 1) / shards;
    for (int64_t replica = 0; replica < replicas; ++replica) {
      for (int64_t shard = 0; shard < shards; ++shard) {
        const int64_t begin = std::min(rows, shard * chunk);
        tensor.boxes.push_back({0, 1, begin, std::min(chunk, rows - begin), 0, kWidth, replica});
      }
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void plan_transformer(benchmark::State& state) {
  const auto tensors = transformer(32, state.range(0), state.range(1));
  const qx::planning::MuonPlanOptions options{.num_ranks = state.range(0) * state.range(1)};
  for (auto _ : state) {
    auto plan = qx::planning::make_muon_plan(tensors, options);
    benchmark::DoNotOptimize(plan.ok());
  }
}
BENCHMARK(plan_transformer)
    ->ArgNames({"replicas", "shards"})
    ->Args({1, 2})
    ->Args({1, 64})
    ->Args({8, 64})
    ->Args({64, 64})
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
