// Bytes a second of f32 <-> bf16 and f16, in cache (16 Ki elements) and out of it (16 Mi elements).
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "quincunx/kernels/convert/convert.h"

namespace {

void BM_Convert(benchmark::State& state) {
  const auto from = static_cast<qx::DType>(state.range(0));
  const auto to = static_cast<qx::DType>(state.range(1));
  const int64_t shape[] = {state.range(2)};
  std::vector<float> x(static_cast<size_t>(shape[0])), y(x.size());
  const auto in = qx::TensorView::contiguous(x.data(), from, shape).value();
  const auto out = qx::TensorView::contiguous(y.data(), to, shape).value();
  for (auto _ : state) {
    if (!qx::kernels::convert(in, out).ok()) state.SkipWithError("convert failed");
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::string(qx::dtype_name(from)) + " to " + std::string(qx::dtype_name(to)));
  state.SetBytesProcessed(state.iterations() * (in.size_bytes() + out.size_bytes()));
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  constexpr auto kF32 = static_cast<int64_t>(qx::DType::kFloat32);
  for (const int64_t count : {1 << 14, 1 << 24}) {
    for (const auto narrow : {qx::DType::kBFloat16, qx::DType::kFloat16}) {
      benchmark->Args({kF32, static_cast<int64_t>(narrow), count});
      benchmark->Args({static_cast<int64_t>(narrow), kF32, count});
    }
  }
}
BENCHMARK(BM_Convert)->Apply(shapes)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
