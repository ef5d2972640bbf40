// 3 x 3 convolutions of ResNet-50 with both tile sizes, on one thread and on all, in operations of a direct sum.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "quincunx/kernels/winograd_convolution/winograd_convolution.h"
#include "quincunx/parallel/parallel_for.h"

namespace {

using qx::TensorView;
using qx::kernels::WinogradOptions;
using qx::kernels::WinogradWeight;

// Channels-last.
TensorView image(std::vector<float>& data, int64_t channels, int64_t side) {
  data.assign(static_cast<size_t>(channels * side * side), 0.5f);
  const std::array<int64_t, 4> shape{1, channels, side, side};
  const std::array<int64_t, 4> strides{channels * side * side, 1, side * channels, channels};
  return TensorView::strided(data.data(), qx::DType::kFloat32, shape, strides).value();
}

void BM_WinogradConvolution(benchmark::State& state) {
  const int64_t channels = state.range(0);
  const int64_t side = state.range(1);
  const int64_t tile = state.range(2);
  qx::set_num_threads(static_cast<int>(state.range(3)));
  std::vector<float> input_data, output_data;
  const TensorView input = image(input_data, channels, side);
  const TensorView output = image(output_data, channels, side);
  std::vector<float> weight_data(static_cast<size_t>(channels * channels * 9), 0.25f);
  const std::array<int64_t, 4> shape{channels, channels, 3, 3};
  const TensorView weight = TensorView::contiguous(weight_data.data(), qx::DType::kFloat32, shape).value();
  std::vector<float> storage(static_cast<size_t>(qx::kernels::winograd_weight_size(tile, channels, channels).value()));
  const WinogradWeight packed = qx::kernels::pack_winograd_weight(weight, tile, storage).value();
  WinogradOptions options;
  options.padding = {1, 1, 1, 1};
  for (auto _ : state) {
    const qx::Status status = qx::kernels::winograd_convolution(input, packed, output, options);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  const double flops = 18.0 * static_cast<double>(channels * channels * side * side);
  state.counters["FLOPS"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                               benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
  qx::set_num_threads(0);
}
BENCHMARK(BM_WinogradConvolution)
    ->ArgNames({"channels", "side", "tile", "threads"})
    ->ArgsProduct({{64}, {56}, {2, 4}, {1, 2}})
    ->ArgsProduct({{128}, {28}, {2, 4}, {1, 2}})
    ->ArgsProduct({{256}, {14}, {2, 4}, {1, 2}})
    ->ArgsProduct({{512}, {7}, {2, 4}, {1, 2}})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
