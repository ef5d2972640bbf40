#include "quincunx/kernels/convolution/lines.h"

#include <algorithm>

#include "quincunx/kernels/convolution/lines_kernel.h"
#include "quincunx/kernels/convolution/panel_kernel.h"
#include "quincunx/kernels/convolution/pointwise.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// With more channels a run of one tap is long enough for panels.
constexpr int64_t kMaxWindowChannels = 15;
// 1 x 1 convolutions of so few channels or weights take 2 to 30 % longer by panels, whose pointers weigh too much
// against the products; larger ones up to 9 % less. On a Zen 4 core.
constexpr int64_t kMaxPointwiseChannels = 64;
constexpr int64_t kMaxPointwiseOutChannels = 128;
constexpr int64_t kMaxPointwiseWeights = 20 << 10;
// Below this many multiply-adds a second thread costs more than it saves.
constexpr int64_t kMinParallelWork = 1 << 17;

// The pixels of a 1 x 1 convolution as one line.
ConvolutionProblem flattened(const ConvolutionProblem& problem) {
  const SpatialSizes each = {1, 1, 1};
  ConvolutionProblem line = problem;
  line.input_layout.strides = {0, 0, even_step(problem.input_layout, problem.out, problem.stride)};
  line.output_layout.strides = {0, 0, even_step(problem.output_layout, problem.out, each)};
  if (problem.epilogue.residual != nullptr) {
    line.epilogue.residual_layout.strides = {0, 0, even_step(problem.epilogue.residual_layout, problem.out, each)};
  }
  line.in = line.out = {1, 1, problem.out_pixels()};
  line.stride = each;
  return line;
}

bool prefers_lines(const ConvolutionProblem& problem) {
  return problem.in_channels <= kMaxPointwiseChannels ||
         (problem.out_channels <= kMaxPointwiseOutChannels &&
          problem.in_channels * problem.out_channels <= kMaxPointwiseWeights);
}

bool has_adjacent_taps(const ConvolutionProblem& problem) {
  const int64_t pixel = problem.input_layout.strides[2];
  return problem.in_channels <= kMaxWindowChannels && problem.dilation[2] == 1 && pixel == problem.in_channels &&
         (problem.num_previous == 0 || problem.previous_layout.strides[2] == pixel);
}

}  // namespace

bool is_line_convolution(const ConvolutionProblem& problem) {
  if (problem.groups != 1 || problem.transposed) return false;
  if (!has_adjacent_channels(problem.input_layout, problem.in_channels) ||
      !has_adjacent_channels(problem.output_layout, problem.out_channels) ||
      (problem.epilogue.residual != nullptr &&
       !has_adjacent_channels(problem.epilogue.residual_layout, problem.out_channels))) {
    return false;
  }
  if (has_even_pixels(problem)) {
    return prefers_lines(problem) && problem.out_pixels() >= min_strip_pixels();
  }
  return has_adjacent_taps(problem) && problem.out[2] >= min_strip_pixels();
}

void convolve_lines(const ConvolutionProblem& problem) {
  const ConvolutionProblem lines = has_even_pixels(problem) ? flattened(problem) : problem;
  // The tiles read whole panels of the bias.
  const Workspace padded(lines.epilogue.bias != nullptr ? lines.out_channels + kBiasPadding : 0);
  const float* bias = nullptr;
  if (lines.epilogue.bias != nullptr) {
    std::copy_n(lines.epilogue.bias, lines.out_channels, padded.data());
    std::fill_n(padded.data() + lines.out_channels, kBiasPadding, 0.0f);
    bias = padded.data();
  }
  const int64_t width = lines.out[2];
  const int64_t strips = (width + kStripPixels - 1) / kStripPixels;
  const int64_t planes = lines.images * lines.out[0];
  const auto run = [&](int64_t begin, int64_t end) {
    const Workspace workspace(line_workspace_size(lines));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i % strips;
      const int64_t line = i / strips;
      const LineStrip strip{line / lines.out[1] / lines.out[0], line / lines.out[1] % lines.out[0], line % lines.out[1],
                            part * width / strips, (part + 1) * width / strips};
      run_line_strip(lines, strip, bias, workspace.data());
    }
  };
  const int64_t items = planes * lines.out[1] * strips;
  const int64_t work = lines.out_channels * lines.in_channels * lines.num_taps() * (width / strips);
  if (work * items < kMinParallelWork) return run(0, items);
  parallel_for(0, items, std::max<int64_t>(1, kMinParallelWork / std::max<int64_t>(1, work)), run);
}

}  // namespace qx::kernels
