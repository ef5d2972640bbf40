// Convolutions of every form, channels-last, on one thread and on all, in operations of a direct sum.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "quincunx/kernels/convolution/convolution.h"
#include "quincunx/parallel/parallel_for.h"

namespace {

using qx::TensorView;
namespace kernels = qx::kernels;

TensorView image(std::vector<float>& data, int64_t channels, int64_t side) {
  data.assign(static_cast<size_t>(channels * side * side), 0.5f);
  const std::array<int64_t, 4> shape{1, channels, side, side};
  const std::array<int64_t, 4> strides{channels * side * side, 1, side * channels, channels};
  return TensorView::strided(data.data(), qx::DType::kFloat32, shape, strides).value();
}

// Channels in and out, side of the image, taps in each direction, stride, groups, threads.
void BM_Convolution(benchmark::State& state) {
  const int64_t in = state.range(0), out = state.range(1), side = state.range(2), taps = state.range(3);
  const int64_t stride = state.range(4), groups = state.range(5);
  qx::set_num_threads(static_cast<int>(state.range(6)));
  kernels::ConvolutionOptions options;
  options.geometry.stride = {stride, stride, 1};
  options.geometry.padding_before = options.geometry.padding_after = {taps / 2, taps / 2, 0};
  options.geometry.groups = groups;
  const int64_t out_side = (side - 1) / stride + 1;
  std::vector<float> input_data, output_data;
  const TensorView input = image(input_data, in, side);
  const TensorView output = image(output_data, out, out_side);
  std::vector<float> weight_data(static_cast<size_t>(out * in / groups * taps * taps), 0.25f);
  const std::array<int64_t, 4> shape{out, in / groups, taps, taps};
  const TensorView weight = TensorView::contiguous(weight_data.data(), qx::DType::kFloat32, shape).value();
  const kernels::ConvolutionPacking exact{.exact = true, .typical_output = {0, 0, 0}};
  std::vector<float> storage(
      static_cast<size_t>(kernels::packed_convolution_weight_size(weight, options.geometry, exact).value()));
  const auto packed = kernels::pack_convolution_weight(weight, options.geometry, storage, exact).value();
  for (auto _ : state) {
    const qx::Status status = kernels::convolution(input, packed, output, options);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  const double flops = 2.0 * static_cast<double>(weight_data.size()) * static_cast<double>(out_side * out_side);
  state.counters["FLOPS"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                               benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
  qx::set_num_threads(0);
}
BENCHMARK(BM_Convolution)
    ->ArgNames({"in", "out", "side", "taps", "stride", "groups", "threads"})
    ->ArgsProduct({{3}, {64}, {224}, {7}, {2}, {1}, {1, 2}})
    ->ArgsProduct({{64}, {256}, {56}, {1}, {1}, {1}, {1, 2}})
    ->ArgsProduct({{256}, {256}, {14}, {3}, {1}, {1}, {1, 2}})
    ->ArgsProduct({{128}, {128}, {28}, {3}, {1}, {32}, {1, 2}})
    ->ArgsProduct({{120}, {120}, {28}, {5}, {1}, {120}, {1, 2}})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
