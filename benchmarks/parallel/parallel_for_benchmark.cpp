// What a parallel loop costs beyond its work: the time of one loop whose bodies do next to nothing.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "quincunx/parallel/parallel_for.h"

namespace qx {
namespace {

// Arguments: threads. One chunk a thread at least, so that every thread takes part.
void empty_loop(benchmark::State& state) {
  set_num_threads(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    parallel_for(0, 1024, 1, [](int64_t begin, int64_t end) { benchmark::DoNotOptimize(begin + end); });
  }
  set_num_threads(0);
}
BENCHMARK(empty_loop)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();

// Arguments: threads, number of floats. Where this beats one thread, a kernel of that size is worth a loop.
void add_one(benchmark::State& state) {
  set_num_threads(static_cast<int>(state.range(0)));
  std::vector<float> values(static_cast<size_t>(state.range(1)));
  for (auto _ : state) {
    parallel_for(0, state.range(1), 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += 1.0f;
    });
    benchmark::ClobberMemory();
  }
  set_num_threads(0);
  state.SetBytesProcessed(state.iterations() * state.range(1) * 8);
}
BENCHMARK(add_one)->ArgsProduct({{1, 2}, {1 << 12, 1 << 16, 1 << 20}})->UseRealTime();

}  // namespace
}  // namespace qx

BENCHMARK_MAIN();
