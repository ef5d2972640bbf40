// Tile programs beside the kernels that they stand for, on one thread. Time an element; peers run in the same process:
//   tile_interpreter_benchmark --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "quincunx/kernels/norm/norm.h"
#include "quincunx/parallel/parallel_for.h"
#include "quincunx/tile/float_tile.h"
#include "quincunx/tile/interpreter.h"
#include "quincunx/tile/program.h"

namespace qx::tile {
namespace {

constexpr char kRmsNorm[] =
    "tile 1\naxes 2\ninput float32 [0, 1]\ninput float32 [1]\noutput float32 [0, 1]\n%0 = load float32 0\n"
    "%1 = mul float32 %0 %0\n%2 = reduce_mean float32 %1\n%3 = constant float32 1e-06\n%4 = add float32 %2 %3\n"
    "%5 = rsqrt float32 %4\n%6 = mul float32 %0 %5\n%7 = load float32 1\n%8 = mul float32 %6 %7\n"
    "%9 = store float32 %8 0\n";
// a * b - c * d
constexpr char kRotation[] =
    "tile 1\naxes 2\ninput float32 [0, 1]\ninput float32 [0, 1]\ninput float32 [0, 1]\ninput float32 [0, 1]\n"
    "output float32 [0, 1]\n%0 = load float32 0\n%1 = load float32 1\n%2 = mul float32 %0 %1\n%3 = load float32 2\n"
    "%4 = load float32 3\n%5 = mul float32 %3 %4\n%6 = sub float32 %2 %5\n%7 = store float32 %6 0\n";

struct Matrix {
  Matrix(int64_t rows, int64_t columns)
      : numbers(static_cast<size_t>(rows * columns), 0.5f),
        view(TensorView::contiguous(numbers.data(), DType::kFloat32, std::vector{rows, columns}).value()) {}
  std::vector<float> numbers;
  TensorView view;
};

PreparedProgram prepared(const char* text) { return PreparedProgram::create(parse(text).value()).value(); }

void count(benchmark::State& state) { state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1)); }

void rms_norm_program(benchmark::State& state) {
  set_num_threads(1);
  Matrix x(state.range(0), state.range(1)), y(state.range(0), state.range(1)), weight(1, state.range(1));
  const TensorView row = weight.view.reshape(std::vector{state.range(1)}).value();
  const PreparedProgram program = prepared(kRmsNorm);
  for (auto _ : state) {
    if (!program.run(std::vector{x.view, row}, std::vector{y.view}).ok()) state.SkipWithError("run");
  }
  count(state);
}

void rms_norm_kernel(benchmark::State& state) {
  set_num_threads(1);
  Matrix x(state.range(0), state.range(1)), y(state.range(0), state.range(1)), weight(1, state.range(1));
  const TensorView row = weight.view.reshape(std::vector{state.range(1)}).value();
  for (auto _ : state) {
    if (!kernels::rms_norm(x.view, {.weight = row, .eps = 1e-6}, y.view).ok()) state.SkipWithError("run");
  }
  count(state);
}

void rotation_program(benchmark::State& state) {
  set_num_threads(1);
  Matrix x(state.range(0), state.range(1)), y(state.range(0), state.range(1));
  const PreparedProgram program = prepared(kRotation);
  for (auto _ : state) {
    if (!program.run(std::vector{x.view, x.view, x.view, x.view}, std::vector{y.view}).ok()) state.SkipWithError("run");
  }
  count(state);
}

// What the region replaces, without the cost of calling operators.
void rotation_in_passes(benchmark::State& state) {
  Matrix x(state.range(0), state.range(1)), y(state.range(0), state.range(1)), z(state.range(0), state.range(1));
  const auto size = static_cast<int64_t>(x.numbers.size());
  for (auto _ : state) {
    compute_float_row(Opcode::kMul, x.numbers.data(), x.numbers.data(), size, y.numbers.data());
    compute_float_row(Opcode::kMul, x.numbers.data(), x.numbers.data(), size, z.numbers.data());
    compute_float_row(Opcode::kSub, y.numbers.data(), z.numbers.data(), size, y.numbers.data());
    benchmark::DoNotOptimize(y.numbers.data());
  }
  count(state);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t rows : {1, 128, 2048}) benchmark->Args({rows, 256})->Args({rows, 2048});
}
BENCHMARK(rms_norm_program)->Apply(sizes);
BENCHMARK(rms_norm_kernel)->Apply(sizes);
BENCHMARK(rotation_program)->Apply(sizes);
BENCHMARK(rotation_in_passes)->Apply(sizes);

}  // namespace
}  // namespace qx::tile

BENCHMARK_MAIN();
