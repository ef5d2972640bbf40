// Block-sparse attention at several densities against dense attention, at the length of a small video.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <vector>

#include "quincunx/kernels/block_sparse_attention/block_sparse_attention.h"

namespace {

using qx::TensorView;

constexpr int64_t kHeads = 2, kLength = 4096, kBlock = 128, kBlocks = kLength / kBlock;

struct Inputs {
  std::vector<float> memory[4];
  std::vector<TensorView> views;

  explicit Inputs(int64_t head_dim) {
    const int64_t shape[] = {1, kHeads, kLength, head_dim};
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (auto& m : memory) {
      m.resize(static_cast<size_t>(kHeads * kLength * head_dim));
      for (float& value : m) value = normal(generator);
      views.push_back(TensorView::contiguous(m.data(), qx::DType::kFloat32, shape).value());
    }
  }
};

void BM_Dense(benchmark::State& state) {
  const Inputs inputs(state.range(0));
  const auto& v = inputs.views;
  for (auto _ : state) {
    const qx::Status status = qx::kernels::attention(v[0], v[1], v[2], {}, v[3]);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
}
BENCHMARK(BM_Dense)->Args({128})->Args({64})->ArgNames({"head_dim"})->UseRealTime();

// Random lists of kBlocks * percent / 100 blocks, which differ from row to row.
void BM_BlockSparse(benchmark::State& state) {
  const Inputs inputs(state.range(0));
  const auto& v = inputs.views;
  const int64_t kept = std::max<int64_t>(1, kBlocks * state.range(1) / 100);
  std::vector<int64_t> idx, num(static_cast<size_t>(kHeads * kBlocks), kept), all(kBlocks);
  std::iota(all.begin(), all.end(), 0);
  std::mt19937 generator(2);
  for (int64_t list = 0; list < kHeads * kBlocks; ++list) {
    std::sample(all.begin(), all.end(), std::back_inserter(idx), kept, generator);
  }
  const std::vector<int64_t> starts = qx::kernels::uniform_block_starts(kLength, kBlock);
  const int64_t idx_shape[] = {1, kHeads, kBlocks, kept};
  qx::kernels::BlockSparseOptions options;
  options.query_starts = options.key_starts = starts;
  options.select_idx = TensorView::contiguous(idx.data(), qx::DType::kInt64, idx_shape).value();
  options.select_num_idx = TensorView::contiguous(num.data(), qx::DType::kInt64, std::span(idx_shape, 3)).value();
  for (auto _ : state) {
    const qx::Status status = qx::kernels::block_sparse_attention(v[0], v[1], v[2], options, v[3]);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
}
BENCHMARK(BM_BlockSparse)
    ->ArgsProduct({{128, 64}, {100, 50, 20, 10}})
    ->ArgNames({"head_dim", "percent"})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
