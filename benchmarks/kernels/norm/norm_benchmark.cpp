// RMSNorm and LayerNorm with weights against a copy of the same bytes, in cache and out of it.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "quincunx/kernels/norm/norm.h"

namespace {

using qx::TensorView;

enum Operation { kCopy, kRms, kLayer };

void BM_Norm(benchmark::State& state) {
  const int64_t rows = state.range(1), n = state.range(2);
  std::vector<float> x(static_cast<size_t>(rows * n), 1.25f), y(x.size()), weight(static_cast<size_t>(n), 0.5f);
  const int64_t shape[] = {rows, n}, parameter_shape[] = {n};
  const auto in = TensorView::contiguous(x.data(), qx::DType::kFloat32, shape).value();
  const auto out = TensorView::contiguous(y.data(), qx::DType::kFloat32, shape).value();
  qx::kernels::NormOptions options;
  options.weight = TensorView::contiguous(weight.data(), qx::DType::kFloat32, parameter_shape).value();
  for (auto _ : state) {
    qx::Status status;
    if (state.range(0) == kCopy) std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
    if (state.range(0) == kRms) status = qx::kernels::rms_norm(in, options, out);
    if (state.range(0) == kLayer) status = qx::kernels::layer_norm(in, options, out);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
    benchmark::ClobberMemory();
  }
  static constexpr const char* kNames[] = {"copy", "rms_norm", "layer_norm"};
  state.SetLabel(kNames[state.range(0)]);
  state.SetBytesProcessed(state.iterations() * 2 * in.size_bytes());
}
BENCHMARK(BM_Norm)
    ->ArgsProduct({{kCopy, kRms, kLayer}, {16, 16384}, {768, 1024}})
    ->ArgNames({"operation", "rows", "n"})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
