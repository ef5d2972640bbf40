// The next token of one row of logits under the usual options.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "quincunx/kernels/sampling/sampling.h"

namespace {

void BM_Sample(benchmark::State& state) {
  const int64_t vocabulary = state.range(1);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> x(static_cast<size_t>(vocabulary));
  for (float& value : x) value = normal(generator);
  int64_t token = 0;
  const int64_t shape[] = {1, vocabulary}, one[] = {1};
  const auto logits = qx::TensorView::contiguous(x.data(), qx::DType::kFloat32, shape).value();
  const auto tokens = qx::TensorView::contiguous(&token, qx::DType::kInt64, one).value();
  qx::kernels::SamplingOptions options;
  if (state.range(0) == 0) options.temperature = 0;
  if (state.range(0) == 2) options.top_k = 50;
  if (state.range(0) == 3) options.top_p = 0.9;
  for (auto _ : state) {
    if (!qx::kernels::sample(logits, options, tokens).ok()) state.SkipWithError("sample failed");
    ++options.step;
  }
  static constexpr const char* kNames[] = {"greedy", "temperature", "top-k 50", "top-p 0.9"};
  state.SetLabel(kNames[state.range(0)]);
}
BENCHMARK(BM_Sample)->ArgsProduct({{0, 1, 2, 3}, {32000, 128000}})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
