// Elements a second of each function, in cache (4096 elements) and out of it (16 Mi elements).
#include <benchmark/benchmark.h>

#include <vector>

#include "quincunx/kernels/elementwise/unary.h"

namespace {

void BM_Unary(benchmark::State& state) {
  const auto function = static_cast<qx::kernels::UnaryFunction>(state.range(0));
  const int64_t shape[] = {state.range(1)};
  std::vector<float> x(static_cast<size_t>(shape[0])), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i % 1000) - 5;
  const auto in = qx::TensorView::contiguous(x.data(), qx::DType::kFloat32, shape).value();
  const auto out = qx::TensorView::contiguous(y.data(), qx::DType::kFloat32, shape).value();
  for (auto _ : state) {
    if (!qx::kernels::apply_unary(function, in, out).ok()) state.SkipWithError("apply_unary failed");
    benchmark::ClobberMemory();
  }
  static constexpr const char* kNames[] = {"exp",      "log",        "erf",         "tanh",      "sigmoid", "silu",
                                           "gelu_erf", "gelu_tanh",  "sin",         "cos",       "rsqrt",   "relu",
                                           "relu6",    "gelu_quick", "hardsigmoid", "hardswish", "softplus"};
  state.SetLabel(kNames[state.range(0)]);
  state.SetItemsProcessed(state.iterations() * shape[0]);
}
BENCHMARK(BM_Unary)->ArgsProduct({benchmark::CreateDenseRange(0, 16, 1), {4096, 1 << 24}})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
