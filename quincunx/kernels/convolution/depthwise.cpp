// Depthwise convolution: each output channel sums the window of its own input channel. Channels fill the vectors.
#include <algorithm>
#include <vector>

#include "quincunx/base/unroll.h"
#include "quincunx/kernels/convolution/convolution_problem.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/convolution/depthwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convolution/epilogue-inl.h"

#ifndef QUINCUNX_KERNELS_CONVOLUTION_DEPTHWISE_ONCE_
#define QUINCUNX_KERNELS_CONVOLUTION_DEPTHWISE_ONCE_
namespace qx::kernels {

// A line of the input under the windows of one output line, and the first of the weight's taps on it.
struct DepthwiseLine {
  const float* input;
  int64_t tap;
};

// One output line: `lines` holds what lies inside of the image.
struct DepthwiseRow {
  const DepthwiseLine* lines;
  int64_t num_lines;
  float* output;
  const float* residual;
};

}  // namespace qx::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kPixels neighbours of an output line, kVectors vectors of channels from `channel` on, kLanes * kVectors of which lie
// in whole blocks of the weights; taps [tap_begin, tap_end) of a line, of which there are kTaps where that is not 0:
// unrolled.
template <int kPixels, int kVectors, int kTaps, class D>
HWY_INLINE void SumPixels(D d, const ConvolutionProblem& problem, const DepthwiseRow& row, int64_t channel, int64_t x,
                          int64_t tap_begin, int64_t tap_end) {
  using V = hn::Vec<D>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectorsPerBlock = static_cast<int>(kChannelBlock) / kLanes;
  const float* bias = problem.epilogue.scale == nullptr ? problem.epilogue.bias : nullptr;
  const int64_t block_stride = kChannelBlock * problem.num_taps();
  const float* weight = problem.weight + channel / kChannelBlock * block_stride + channel % kChannelBlock;
  const int64_t pixel = problem.input_layout.strides[2];
  const int64_t step = problem.stride[2] * pixel;
  const int64_t tap_step = problem.dilation[2] * pixel;
  const int64_t start = (x * problem.stride[2] - problem.padding[2]) * pixel + channel;
  V sums[kPixels][kVectors];
  QX_UNROLL for (int v = 0; v < kVectors; ++v) {
    const V first = bias != nullptr ? hn::LoadU(d, bias + channel + v * kLanes) : hn::Zero(d);
    QX_UNROLL for (int p = 0; p < kPixels; ++p) sums[p][v] = first;
  }
  for (int64_t i = 0; i < row.num_lines; ++i) {
    const float* input = row.lines[i].input + start + tap_begin * tap_step;
    const float* taps = weight + (row.lines[i].tap + tap_begin) * kChannelBlock;
    const auto add = [&]() HWY_ATTR {
      QX_UNROLL for (int v = 0; v < kVectors; ++v) {
        const V w = hn::LoadU(d, taps + v / kVectorsPerBlock * block_stride + v % kVectorsPerBlock * kLanes);
        QX_UNROLL for (int p = 0; p < kPixels; ++p) {
          sums[p][v] = hn::MulAdd(hn::LoadU(d, input + p * step + v * kLanes), w, sums[p][v]);
        }
      }
      input += tap_step;
      taps += kChannelBlock;
    };
    if constexpr (kTaps != 0) {
      QX_UNROLL for (int t = 0; t < kTaps; ++t) add();
    } else {
      for (int64_t t = tap_begin; t < tap_end; ++t) add();
    }
  }
  const int64_t output_step = problem.output_layout.strides[2];
  float* output = row.output + x * output_step + channel;
  QX_UNROLL for (int p = 0; p < kPixels; ++p) {
    QX_UNROLL for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[p][v], d, output + p * output_step + v * kLanes);
  }
}

// Channels [channel, end) as far as kVectors whole vectors of kLanes reach; returns the first channel that is left.
template <int kLanes, int kVectors, int kPixels, int kTaps>
int64_t SumVectors(const ConvolutionProblem& problem, const DepthwiseRow& row, int64_t channel, int64_t end, int64_t x,
                   int64_t tap_begin, int64_t tap_end) {
  const hn::CappedTag<float, kLanes> d;
  const auto channels = static_cast<int64_t>(hn::Lanes(d)) * kVectors;
  for (; channel + channels <= end; channel += channels) {
    SumPixels<kPixels, kVectors, kTaps>(d, problem, row, channel, x, tap_begin, tap_end);
  }
  return channel;
}

// Channels [begin, end) of a line.
struct ChannelRange {
  int64_t begin, end;
};

template <int kPixels, int kTaps>
void SumChannels(const ConvolutionProblem& problem, const DepthwiseRow& row, ChannelRange channels, int64_t x,
                 int64_t tap_begin, int64_t tap_end) {
  int64_t c = channels.begin;
  // A pixel of its own takes several vectors: a single sum would wait for itself.
  if constexpr (kPixels == 1) c = SumVectors<16, 8, 1, kTaps>(problem, row, c, channels.end, x, tap_begin, tap_end);
  if constexpr (kPixels == 1) c = SumVectors<16, 4, 1, kTaps>(problem, row, c, channels.end, x, tap_begin, tap_end);
  c = SumVectors<16, 1, kPixels, kTaps>(problem, row, c, channels.end, x, tap_begin, tap_end);
  c = SumVectors<8, 1, kPixels, kTaps>(problem, row, c, channels.end, x, tap_begin, tap_end);
  c = SumVectors<4, 1, kPixels, kTaps>(problem, row, c, channels.end, x, tap_begin, tap_end);
  SumVectors<1, 1, kPixels, kTaps>(problem, row, c, channels.end, x, tap_begin, tap_end);
}

// Pixels [x, end), all taps of which lie inside of the line.
template <int kTaps>
void SumInterior(const ConvolutionProblem& problem, const DepthwiseRow& row, ChannelRange channels, int64_t x,
                 int64_t end) {
  const int64_t taps = problem.kernel[2];
  for (; x + 8 <= end; x += 8) SumChannels<8, kTaps>(problem, row, channels, x, 0, taps);
  for (; x + 4 <= end; x += 4) SumChannels<4, kTaps>(problem, row, channels, x, 0, taps);
  for (; x < end; ++x) SumChannels<1, kTaps>(problem, row, channels, x, 0, taps);
}

// Pixels [x, end), of whose taps only some do.
void SumEdge(const ConvolutionProblem& problem, const DepthwiseRow& row, ChannelRange channels, int64_t x,
             int64_t end) {
  const int64_t dilation = problem.dilation[2];
  for (; x < end; ++x) {
    const int64_t first = x * problem.stride[2] - problem.padding[2];
    int64_t tap_begin = 0;
    int64_t tap_end = problem.kernel[2];
    while (tap_begin < tap_end && first + tap_begin * dilation < 0) ++tap_begin;
    while (tap_end > tap_begin && first + (tap_end - 1) * dilation >= problem.in[2]) --tap_end;
    switch (tap_end - tap_begin) {
      case 2: SumChannels<1, 2>(problem, row, channels, x, tap_begin, tap_end); break;
      case 3: SumChannels<1, 3>(problem, row, channels, x, tap_begin, tap_end); break;
      case 4: SumChannels<1, 4>(problem, row, channels, x, tap_begin, tap_end); break;
      default: SumChannels<1, 0>(problem, row, channels, x, tap_begin, tap_end);
    }
  }
}

void SumLine(const ConvolutionProblem& problem, const DepthwiseRow& row, ChannelRange channels, int64_t interior_begin,
             int64_t interior_end) {
  SumEdge(problem, row, channels, 0, interior_begin);
  switch (problem.kernel[2]) {
    case 3: SumInterior<3>(problem, row, channels, interior_begin, interior_end); break;
    case 5: SumInterior<5>(problem, row, channels, interior_begin, interior_end); break;
    default: SumInterior<0>(problem, row, channels, interior_begin, interior_end);
  }
  SumEdge(problem, row, channels, interior_end, problem.out[2]);
}

// As SumPixels for kTaps taps that are one pixel apart and kStride: each column of the input is loaded once for all the
// windows that it lies under. Bit j of `columns`: column j of the group lies inside of the line.
template <int kPixels, int kTaps, int kStride, bool kIsMasked, class D>
HWY_INLINE void SumColumns(D d, const ConvolutionProblem& problem, const DepthwiseRow& row, int64_t channel, int64_t x,
                           [[maybe_unused]] uint32_t columns) {
  using V = hn::Vec<D>;
  constexpr int kColumns = (kPixels - 1) * kStride + kTaps;
  const float* bias = problem.epilogue.scale == nullptr ? problem.epilogue.bias : nullptr;
  const float* weight =
      problem.weight + channel / kChannelBlock * kChannelBlock * problem.num_taps() + channel % kChannelBlock;
  const int64_t pixel = problem.input_layout.strides[2];
  const int64_t start = (x * kStride - problem.padding[2]) * pixel + channel;
  const V first = bias != nullptr ? hn::LoadU(d, bias + channel) : hn::Zero(d);
  V sums[kPixels];
  QX_UNROLL for (int p = 0; p < kPixels; ++p) sums[p] = first;
  for (int64_t i = 0; i < row.num_lines; ++i) {
    const float* HWY_RESTRICT input = row.lines[i].input + start;
    const float* HWY_RESTRICT taps = weight + row.lines[i].tap * kChannelBlock;
    V w[kTaps];
    QX_UNROLL for (int t = 0; t < kTaps; ++t) w[t] = hn::LoadU(d, taps + t * kChannelBlock);
    QX_UNROLL for (int j = 0; j < kColumns; ++j) {
      if (kIsMasked && (columns >> j & 1) == 0) continue;
      const V column = hn::LoadU(d, input + j * pixel);
      QX_UNROLL for (int t = kTaps - 1; t >= 0; --t) {
        const int p = (j - t) / kStride;
        if (j >= t && (j - t) % kStride == 0 && p < kPixels) sums[p] = hn::MulAdd(column, w[t], sums[p]);
      }
    }
  }
  const int64_t output_step = problem.output_layout.strides[2];
  float* output = row.output + x * output_step + channel;
  QX_UNROLL for (int p = 0; p < kPixels; ++p) hn::StoreU(sums[p], d, output + p * output_step);
}

// Whole vectors of kLanes channels; returns the first channel that is left.
template <int kLanes, int kPixels, int kTaps, int kStride>
int64_t SumColumnsOf(const ConvolutionProblem& problem, const DepthwiseRow& row, ChannelRange channels, int64_t x,
                     uint32_t columns) {
  const hn::CappedTag<float, kLanes> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr uint32_t kAll = (uint32_t{1} << ((kPixels - 1) * kStride + kTaps)) - 1;
  int64_t c = channels.begin;
  if (columns == kAll) {
    for (; c + lanes <= channels.end; c += lanes) {
      SumColumns<kPixels, kTaps, kStride, false>(d, problem, row, c, x, columns);
    }
  } else {
    for (; c + lanes <= channels.end; c += lanes) {
      SumColumns<kPixels, kTaps, kStride, true>(d, problem, row, c, x, columns);
    }
  }
  return c;
}

// A line of at least kPixels pixels. A last group that would be smaller computes pixels of the one before it again.
// Returns the first channel that is left.
template <int kPixels, int kTaps, int kStride>
int64_t SumLineByColumns(const ConvolutionProblem& problem, const DepthwiseRow& row, ChannelRange channels) {
  constexpr int kColumns = (kPixels - 1) * kStride + kTaps;
  const int64_t width = problem.out[2];
  int64_t end = channels.begin;
  for (int64_t x = 0; x < width; x += kPixels) {
    const int64_t first = std::min(x, width - kPixels);
    const int64_t column = first * kStride - problem.padding[2];
    uint32_t columns = 0;
    for (int j = 0; j < kColumns; ++j) {
      columns |= static_cast<uint32_t>(column + j >= 0 && column + j < problem.in[2]) << j;
    }
    end = SumColumnsOf<16, kPixels, kTaps, kStride>(problem, row, channels, first, columns);
    end = SumColumnsOf<8, kPixels, kTaps, kStride>(problem, row, {end, channels.end}, first, columns);
  }
  return end;
}

using SumLineFunction = int64_t (*)(const ConvolutionProblem&, const DepthwiseRow&, ChannelRange);

// Pixels of a group: eight sums hide the latency of a multiply-add; seven divide the sides of many image networks.
template <int kTaps, int kStride>
SumLineFunction SumLineFor(int64_t width) {
  if (width < 7) return nullptr;
  if (width < 8 || width % 7 == 0) return &SumLineByColumns<7, kTaps, kStride>;
  return &SumLineByColumns<8, kTaps, kStride>;
}

// Null where SumLine has to do it.
SumLineFunction SumLineFor(const ConvolutionProblem& problem) {
  const int64_t width = problem.out[2];
  if (problem.dilation[2] != 1) return nullptr;
  if (problem.kernel[2] == 3 && problem.stride[2] == 1) return SumLineFor<3, 1>(width);
  if (problem.kernel[2] == 3 && problem.stride[2] == 2) return SumLineFor<3, 2>(width);
  if (problem.kernel[2] == 5 && problem.stride[2] == 1) return SumLineFor<5, 1>(width);
  if (problem.kernel[2] == 5 && problem.stride[2] == 2) return SumLineFor<5, 2>(width);
  return nullptr;
}

// Weights of the channels that are computed together: 16 KiB, half of an L1 cache. As many channels as that allows, so
// that pixels are read from end to end.
constexpr int64_t kWeightFloats = 4 << 10;

// Output lines `rows`, channels [begin, end).
void DepthwiseBlock(const ConvolutionProblem& problem, const DepthwiseRow* rows, int64_t num_rows, int64_t begin,
                    int64_t end, int64_t interior_begin, int64_t interior_end) {
  const int64_t blocks = std::max<int64_t>(1, kWeightFloats / (problem.num_taps() * kChannelBlock));
  const SumLineFunction sum_line = SumLineFor(problem);
  for (int64_t c = begin; c < end; c += blocks * kChannelBlock) {
    const ChannelRange channels{c, std::min(end, c + blocks * kChannelBlock)};
    for (int64_t r = 0; r < num_rows; ++r) {
      ChannelRange rest = channels;
      if (sum_line != nullptr) rest.begin = sum_line(problem, rows[r], channels);
      if (rest.begin < rest.end) SumLine(problem, rows[r], rest, interior_begin, interior_end);
    }
  }
  const ConvolutionEpilogue& epilogue = problem.epilogue;
  if (epilogue.scale == nullptr && epilogue.residual == nullptr &&
      epilogue.activation == ConvolutionActivation::kNone) {
    return;
  }
  const FinishRowFunction finish = FinishRowFor(epilogue.activation);
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t x = 0; x < problem.out[2]; ++x) {
      const RowOperands operands{
          epilogue.scale != nullptr ? epilogue.scale + begin : nullptr,
          epilogue.scale != nullptr && epilogue.bias != nullptr ? epilogue.bias + begin : nullptr,
          rows[r].residual != nullptr ? rows[r].residual + x * epilogue.residual_layout.strides[2] + begin : nullptr};
      finish(epilogue, operands, end - begin, rows[r].output + x * problem.output_layout.strides[2] + begin);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(DepthwiseBlock);

namespace {

// The input of a task takes at most so many floats (256 KiB): it stays in the L2 cache for all its channels.
constexpr int64_t kTaskFloats = 64 << 10;
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kMinParallelWork = 1 << 16;

int64_t line_offset(const ImageLayout& layout, int64_t image, int64_t z, int64_t y) {
  return image * layout.image_stride + z * layout.strides[0] + y * layout.strides[1];
}

// Output line `line` of all images; its input lines are appended to `lines`.
DepthwiseRow row_of(const ConvolutionProblem& problem, int64_t line, DepthwiseLine* lines) {
  const int64_t y = line % problem.out[1];
  const int64_t z = line / problem.out[1] % problem.out[0];
  const int64_t image = line / (problem.out[1] * problem.out[0]);
  DepthwiseRow row{lines, 0, problem.output + line_offset(problem.output_layout, image, z, y), nullptr};
  if (problem.epilogue.residual != nullptr) {
    row.residual = problem.epilogue.residual + line_offset(problem.epilogue.residual_layout, image, z, y);
  }
  for (int64_t a = 0; a < problem.kernel[0]; ++a) {
    for (int64_t b = 0; b < problem.kernel[1]; ++b) {
      const float* input =
          input_line(problem, image, z * problem.stride[0] - problem.padding[0] + a * problem.dilation[0],
                     y * problem.stride[1] - problem.padding[1] + b * problem.dilation[1]);
      if (input != nullptr) lines[row.num_lines++] = {input, (a * problem.kernel[1] + b) * problem.kernel[2]};
    }
  }
  return row;
}

struct Interior {
  int64_t begin, end;
};

Interior interior_of(const ConvolutionProblem& problem) {
  const int64_t stride = problem.stride[2];
  const int64_t reach = (problem.kernel[2] - 1) * problem.dilation[2] - problem.padding[2];
  const int64_t begin = std::min((problem.padding[2] + stride - 1) / stride, problem.out[2]);
  const int64_t last = problem.in[2] - 1 - reach;
  const int64_t end = last < 0 ? 0 : std::min(last / stride + 1, problem.out[2]);
  return {begin, std::max(begin, end)};
}

}  // namespace

int64_t depthwise_weight_size(int64_t channels, int64_t taps) {
  return num_channel_blocks(channels) * kChannelBlock * taps;
}

void convolve_depthwise(const ConvolutionProblem& problem) {
  const int64_t lines = problem.images * problem.out[0] * problem.out[1];
  const int64_t line_floats = problem.out[2] * problem.stride[2] * problem.out_channels;
  const int64_t lines_per_task = std::clamp<int64_t>(kTaskFloats / std::max<int64_t>(1, line_floats), 1, lines);
  const int64_t line_tasks = (lines + lines_per_task - 1) / lines_per_task;
  const int64_t work = lines * problem.out[2] * problem.out_channels * problem.num_taps();
  const int64_t threads = in_parallel_region() || work < kMinParallelWork ? 1 : num_threads();
  const int64_t blocks = num_channel_blocks(problem.out_channels);
  const int64_t channel_tasks =
      threads == 1 ? 1 : std::clamp<int64_t>((kTasksPerThread * threads + line_tasks - 1) / line_tasks, 1, blocks);
  const Interior interior = interior_of(problem);
  const auto run = [&](int64_t begin, int64_t end) {
    std::vector<DepthwiseRow> rows;
    std::vector<DepthwiseLine> input_lines(static_cast<size_t>(lines_per_task * problem.kernel[0] * problem.kernel[1]));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task / channel_tasks * lines_per_task;
      const int64_t part = task % channel_tasks;
      rows.clear();
      DepthwiseLine* free = input_lines.data();
      for (int64_t line = first; line < std::min(first + lines_per_task, lines); ++line) {
        rows.push_back(row_of(problem, line, free));
        free += rows.back().num_lines;
      }
      HWY_DYNAMIC_DISPATCH(DepthwiseBlock)(
          problem, rows.data(), static_cast<int64_t>(rows.size()), part * blocks / channel_tasks * kChannelBlock,
          std::min((part + 1) * blocks / channel_tasks * kChannelBlock, problem.out_channels), interior.begin,
          interior.end);
    }
  };
  if (threads == 1) return run(0, line_tasks * channel_tasks);
  parallel_for(0, line_tasks * channel_tasks, 1, run);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
