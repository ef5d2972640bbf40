// Dense attention at the lengths of vision transformers, language models and diffusion transformers.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "quincunx/kernels/attention/attention.h"

namespace {

using qx::TensorView;

void BM_Attention(benchmark::State& state) {
  const int64_t heads = state.range(0), length = state.range(1), head_dim = state.range(2);
  const int64_t shape[] = {1, heads, length, head_dim};
  std::vector<float> memory[4];
  std::vector<TensorView> views;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (auto& m : memory) {
    m.resize(static_cast<size_t>(heads * length * head_dim));
    for (float& value : m) value = normal(generator);
    views.push_back(TensorView::contiguous(m.data(), qx::DType::kFloat32, shape).value());
  }
  qx::kernels::AttentionOptions options;
  options.causal = state.range(3) != 0;
  for (auto _ : state) {
    const qx::Status status = qx::kernels::attention(views[0], views[1], views[2], options, views[3]);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
    benchmark::ClobberMemory();
  }
  const double flops = 4.0 * static_cast<double>(heads * length * length * head_dim) / (options.causal ? 2 : 1);
  state.counters["flop/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Attention)
    ->Args({4, 4096, 128, 0})
    ->Args({4, 4096, 64, 0})
    ->Args({12, 197, 64, 0})
    ->Args({8, 1024, 64, 1})
    ->ArgNames({"heads", "length", "head_dim", "causal"})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
