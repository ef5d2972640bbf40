// Softmax over the last dimension, in cache and out of it.
#include <benchmark/benchmark.h>

#include <vector>

#include "quincunx/kernels/softmax/softmax.h"

namespace {

void BM_Softmax(benchmark::State& state) {
  const int64_t shape[] = {state.range(0), state.range(1)};
  std::vector<float> x(static_cast<size_t>(shape[0] * shape[1])), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i % 1000);
  const auto in = qx::TensorView::contiguous(x.data(), qx::DType::kFloat32, shape).value();
  const auto out = qx::TensorView::contiguous(y.data(), qx::DType::kFloat32, shape).value();
  for (auto _ : state) {
    const qx::Status status = qx::kernels::softmax(in, out);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * in.num_elements());
}
BENCHMARK(BM_Softmax)->ArgsProduct({{16, 16384}, {197, 1024}})->ArgNames({"rows", "n"})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
