// The matrix product: packed and plain weights, epilogues, one thread and all.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "quincunx/kernels/gemm/gemm.h"
#include "quincunx/parallel/parallel_for.h"

namespace {

using qx::TensorView;
using qx::kernels::Activation;

TensorView matrix(std::vector<float>& data, int64_t rows, int64_t columns) {
  data.assign(static_cast<size_t>(rows * columns), 0.5f);
  return TensorView::contiguous(data.data(), qx::DType::kFloat32, std::array{rows, columns}).value();
}

struct Problem {
  explicit Problem(const benchmark::State& state)
      : rows(state.range(0)), columns(state.range(1)), inner(state.range(2)) {
    qx::set_num_threads(static_cast<int>(state.range(3)));
    a = matrix(a_data, rows, inner);
    b = matrix(b_data, inner, columns);
    output = matrix(output_data, rows, columns);
    storage.resize(static_cast<size_t>(qx::kernels::packed_matrix_size(inner, columns).value()));
    packed = qx::kernels::pack_b(b, storage).value();
  }

  void count(benchmark::State& state) const {
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner);
    state.counters["FLOPS"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                                 benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
    qx::set_num_threads(0);
  }

  int64_t rows, columns, inner;
  std::vector<float> a_data, b_data, output_data, storage;
  TensorView a, b, output;
  qx::kernels::PackedMatrix packed;
};

void BM_GemmPacked(benchmark::State& state) {
  Problem problem(state);
  for (auto _ : state) {
    const qx::Status status = qx::kernels::gemm(problem.a, problem.packed, problem.output);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  problem.count(state);
}

void BM_GemmPlain(benchmark::State& state) {
  Problem problem(state);
  for (auto _ : state) {
    const qx::Status status = qx::kernels::gemm(problem.a, problem.b, problem.output);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  problem.count(state);
}

// Range 4 is the activation; bias and residual are always there.
void BM_GemmEpilogue(benchmark::State& state) {
  Problem problem(state);
  std::vector<float> bias_data, residual_data;
  matrix(bias_data, 1, problem.columns);
  const TensorView residual = matrix(residual_data, problem.rows, problem.columns);
  const TensorView bias =
      TensorView::contiguous(bias_data.data(), qx::DType::kFloat32, std::array{problem.columns}).value();
  qx::kernels::GemmOptions options;
  options.bias = &bias;
  options.residual = &residual;
  options.activation = static_cast<Activation>(state.range(4));
  for (auto _ : state) {
    const qx::Status status = qx::kernels::gemm(problem.a, problem.packed, problem.output, options);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  problem.count(state);
}

void add_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"M", "N", "K", "threads"})->UseRealTime();
  for (const int64_t threads : {1, 2}) {
    benchmark->Args({512, 768, 768, threads});
    benchmark->Args({2048, 2048, 2048, threads});
    benchmark->Args({128, 3072, 768, threads});
    benchmark->Args({128, 768, 3072, threads});
    benchmark->Args({197, 768, 768, threads});
    benchmark->Args({16, 768, 768, threads});
    benchmark->Args({1, 768, 768, threads});
    benchmark->Args({1, 3072, 768, threads});
  }
}
BENCHMARK(BM_GemmPacked)->Apply(add_shapes);
BENCHMARK(BM_GemmPlain)->Apply(add_shapes);
BENCHMARK(BM_GemmEpilogue)
    ->ArgsProduct({{128, 512}, {3072}, {768}, {1}, {0, 1, 2, 3, 4}})
    ->ArgNames({"M", "N", "K", "threads", "activation"})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
