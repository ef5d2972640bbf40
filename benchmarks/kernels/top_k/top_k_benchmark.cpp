// The 50 largest of a row, and the whole row in order.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "quincunx/kernels/top_k/top_k.h"

namespace {

using qx::DType;
using qx::TensorView;

void BM_TopK(benchmark::State& state) {
  const int64_t count = state.range(1), kept = state.range(0) == 0 ? 50 : count;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count)), values(static_cast<size_t>(kept));
  for (float& value : x) value = normal(generator);
  std::vector<int64_t> indices(values.size());
  const int64_t shape[] = {count}, result[] = {kept};
  const auto in = TensorView::contiguous(x.data(), DType::kFloat32, shape).value();
  const auto out = TensorView::contiguous(values.data(), DType::kFloat32, result).value();
  const auto places = TensorView::contiguous(indices.data(), DType::kInt64, result).value();
  for (auto _ : state) {
    if (!qx::kernels::top_k(in, true, out, places).ok()) state.SkipWithError("top_k failed");
  }
  state.SetLabel(state.range(0) == 0 ? "top 50" : "sort");
  state.SetItemsProcessed(state.iterations() * count);
}
BENCHMARK(BM_TopK)->ArgsProduct({{0, 1}, {1000, 128000}})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
