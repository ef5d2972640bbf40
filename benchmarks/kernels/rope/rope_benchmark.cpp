// RoPE in place on [1, S, 16, 128] in both forms and in f32 and bf16.
#include <benchmark/benchmark.h>

#include <vector>

#include "quincunx/kernels/rope/rope.h"

namespace {

using qx::DType;
using qx::TensorView;

void BM_Rope(benchmark::State& state) {
  const auto form = static_cast<qx::kernels::RopeForm>(state.range(0));
  const auto dtype = static_cast<DType>(state.range(1));
  const int64_t positions = state.range(2);
  std::vector<float> x(static_cast<size_t>(positions * 16 * 128)), cos(static_cast<size_t>(positions * 64)), sin(cos);
  const int64_t shape[] = {1, positions, 16, 128}, table_shape[] = {positions, 64};
  const auto q = TensorView::contiguous(x.data(), dtype, shape).value();
  const auto c = TensorView::contiguous(cos.data(), DType::kFloat32, table_shape).value();
  const auto s = TensorView::contiguous(sin.data(), DType::kFloat32, table_shape).value();
  qx::Status status = qx::kernels::fill_rope_tables({}, c, s);
  for (auto _ : state) {
    if (status.ok()) status = qx::kernels::apply_rope(q, c, s, {form, 1}, q);
    benchmark::ClobberMemory();
  }
  if (!status.ok()) state.SkipWithError(status.message().c_str());
  state.SetBytesProcessed(state.iterations() * 2 * q.size_bytes());
}
BENCHMARK(BM_Rope)
    ->ArgsProduct({{0, 1}, {static_cast<int64_t>(DType::kFloat32), static_cast<int64_t>(DType::kBFloat16)}, {16, 4096}})
    ->ArgNames({"interleaved", "dtype", "positions"})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
