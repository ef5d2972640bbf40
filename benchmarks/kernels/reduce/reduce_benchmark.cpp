// The arithmetic of collectives: two sources to one, in and out of cache.
#include <benchmark/benchmark.h>

#include <vector>

#include "quincunx/kernels/reduce/reduce.h"

namespace {

void BM_Reduce(benchmark::State& state) {
  const auto dtype = static_cast<qx::DType>(state.range(0));
  const int64_t size_bytes = state.range(1);
  std::vector<std::byte> a(static_cast<size_t>(size_bytes)), b(a.size()), out(a.size());
  const void* sources[] = {a.data(), b.data()};
  for (auto _ : state) {
    qx::kernels::reduce(qx::kernels::ReduceKind::kSum, dtype, sources, size_bytes / qx::dtype_size_bytes(dtype),
                        out.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * size_bytes);
}
BENCHMARK(BM_Reduce)
    ->ArgsProduct({{static_cast<int64_t>(qx::DType::kFloat32), static_cast<int64_t>(qx::DType::kBFloat16),
                    static_cast<int64_t>(qx::DType::kFloat16), static_cast<int64_t>(qx::DType::kInt64)},
                   {64 << 10, 64 << 20}})
    ->ArgNames({"dtype", "bytes"});

}  // namespace

BENCHMARK_MAIN();
