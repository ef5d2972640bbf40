// Five steps of polar_express on the shapes of Muon, in each form.
#include <benchmark/benchmark.h>

#include <array>
#include <random>
#include <vector>

#include "quincunx/kernels/newton_schulz/newton_schulz.h"
#include "quincunx/parallel/parallel_for.h"

namespace {

using qx::TensorView;
using qx::kernels::NewtonSchulzForm;

// Ranges: batch, rows, cols, form, threads.
void BM_NewtonSchulz(benchmark::State& state) {
  const std::array shape{state.range(0), state.range(1), state.range(2)};
  const auto steps = qx::kernels::newton_schulz_coefficients("polar_express", 5).value();
  std::vector<float> input(static_cast<size_t>(shape[0] * shape[1] * shape[2])), output(input.size());
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (float& value : input) value = normal(generator);
  qx::kernels::NewtonSchulzOptions options;
  options.coefficients = steps;
  options.form = static_cast<NewtonSchulzForm>(state.range(3));
  qx::set_num_threads(static_cast<int>(state.range(4)));
  const auto from = TensorView::contiguous(input.data(), qx::DType::kFloat32, shape).value();
  const auto to = TensorView::contiguous(output.data(), qx::DType::kFloat32, shape).value();
  for (auto _ : state) {
    const qx::Status status = qx::kernels::newton_schulz(from, to, options);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  qx::set_num_threads(0);
  // The rate of the operations that the form needs: compare it with the rate of gemm.
  const double flops =
      static_cast<double>(shape[0]) * qx::kernels::newton_schulz_flops(shape[1], shape[2], 5, options.form);
  state.counters["FLOPS"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                               benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}

void add_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"batch", "rows", "cols", "form", "threads"})->UseRealTime();
  constexpr std::array<std::array<int64_t, 3>, 6> kShapes = {
      {{74, 24, 1024}, {74, 24, 10240}, {8, 512, 256}, {6, 768, 3072}, {1, 512, 512}, {1, 1024, 1024}}};
  for (const auto& [batch, rows, cols] : kShapes) {
    for (const auto form : {NewtonSchulzForm::kDirect, NewtonSchulzForm::kGram, NewtonSchulzForm::kGramPure}) {
      for (const int64_t threads : {1, 2}) benchmark->Args({batch, rows, cols, static_cast<int64_t>(form), threads});
    }
  }
}
BENCHMARK(BM_NewtonSchulz)->Apply(add_shapes);

}  // namespace

BENCHMARK_MAIN();
