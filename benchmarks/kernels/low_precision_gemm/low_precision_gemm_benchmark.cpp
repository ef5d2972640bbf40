// Products with low-precision weights: each format with its activations untouched and quantised, and f32 beside them.
#include <benchmark/benchmark.h>

#include <array>
#include <random>
#include <vector>

#include "quincunx/kernels/low_precision_gemm/low_precision_gemm.h"
#include "quincunx/parallel/parallel_for.h"

namespace {

using qx::DType;
using qx::TensorView;
using qx::kernels::InputQuantization;
using qx::kernels::WeightFormat;

TensorView matrix(std::vector<float>& data, int64_t rows, int64_t columns) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  data.resize(static_cast<size_t>(rows * columns));
  for (float& value : data) value = normal(generator);
  return TensorView::contiguous(data.data(), DType::kFloat32, std::array{rows, columns}).value();
}

void count(benchmark::State& state, int64_t weight_bytes) {
  const auto iterations = static_cast<double>(state.iterations());
  const double flops = 2.0 * static_cast<double>(state.range(0) * state.range(1)) * static_cast<double>(state.range(2));
  state.counters["FLOPS"] =
      benchmark::Counter(flops * iterations, benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
  state.counters["weight_bytes"] = benchmark::Counter(static_cast<double>(weight_bytes) * iterations,
                                                      benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}

void BM_Float32(benchmark::State& state) {
  qx::set_num_threads(1);
  const int64_t rows = state.range(0), columns = state.range(1), inner = state.range(2);
  std::vector<float> a_data, b_data, output_data;
  const TensorView a = matrix(a_data, rows, inner);
  const TensorView output = matrix(output_data, rows, columns);
  std::vector<float> storage(static_cast<size_t>(qx::kernels::packed_matrix_size(inner, columns).value()));
  const auto packed = qx::kernels::pack_b(matrix(b_data, inner, columns), storage).value();
  for (auto _ : state) {
    if (!qx::kernels::gemm(a, packed, output).ok()) state.SkipWithError("gemm failed");
  }
  count(state, static_cast<int64_t>(storage.size()) * 4);
}

void BM_LowPrecision(benchmark::State& state, WeightFormat format, InputQuantization input, DType dtype) {
  qx::set_num_threads(1);
  const int64_t rows = state.range(0), columns = state.range(1), inner = state.range(2);
  std::vector<float> a_data, b_data, output_data;
  const TensorView values = matrix(a_data, rows, inner);
  std::vector<qx::BFloat16> halves(a_data.begin(), a_data.end());
  const TensorView half_values =
      TensorView::contiguous(halves.data(), DType::kBFloat16, std::array{rows, inner}).value();
  const TensorView a = dtype == DType::kFloat32 ? values : half_values;
  const TensorView output = matrix(output_data, rows, columns);
  std::vector<uint8_t> storage(
      static_cast<size_t>(qx::kernels::packed_weight_size_bytes(format, inner, columns).value()));
  const auto packed = qx::kernels::pack_weight(matrix(b_data, inner, columns), format, storage).value();
  qx::kernels::LowPrecisionOptions options;
  options.input = input;
  options.input_scale = 0.03f;
  for (auto _ : state) {
    if (!qx::kernels::low_precision_gemm(a, packed, output, options).ok()) state.SkipWithError("product failed");
  }
  count(state, static_cast<int64_t>(storage.size()));
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t rows : {1, 8, 128, 512}) benchmark->Args({rows, 3072, 768});
  benchmark->Args({1, 8192, 4096});
}

#define QX_LOW_PRECISION(name, format, input, dtype) \
  BENCHMARK_CAPTURE(BM_LowPrecision, name, WeightFormat::format, InputQuantization::input, DType::dtype)->Apply(shapes)

BENCHMARK(BM_Float32)->Apply(shapes);
QX_LOW_PRECISION(bfloat16, kBFloat16, kNone, kFloat32);
QX_LOW_PRECISION(bfloat16_both, kBFloat16, kNone, kBFloat16);
QX_LOW_PRECISION(float16, kFloat16, kNone, kFloat32);
QX_LOW_PRECISION(int8, kInt8, kNone, kFloat32);
QX_LOW_PRECISION(int8_dynamic, kInt8, kDynamic, kFloat32);
QX_LOW_PRECISION(int8_static, kInt8, kStatic, kFloat32);
QX_LOW_PRECISION(int8_grouped, kInt8Grouped, kNone, kFloat32);
QX_LOW_PRECISION(int8_grouped_dynamic, kInt8Grouped, kDynamic, kFloat32);
QX_LOW_PRECISION(int4_grouped, kInt4Grouped, kNone, kFloat32);
QX_LOW_PRECISION(int4_grouped_dynamic, kInt4Grouped, kDynamic, kFloat32);

}  // namespace

BENCHMARK_MAIN();
