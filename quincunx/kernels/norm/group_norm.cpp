#include "quincunx/kernels/norm/group_norm.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/row_loop.h"
#include "quincunx/kernels/convert/row_offsets.h"
#include "quincunx/kernels/convert/stream_rule.h"
#include "quincunx/kernels/norm/group_norm_kernel.h"
#include "quincunx/kernels/norm/norm_kernel.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// Elements whose statistics are taken at once: 16 KiB of f32, in L1 for both passes over them.
constexpr int64_t kBlock = 4096;
// Groups of up to this size are fetched one ahead: two of them and their results leave room in an L2 cache of 1 MiB.
constexpr int64_t kFetchedGroupBytes = int64_t{256} << 10;
// Samples of channels-last tensors are read twice, together as many as this holds: it stays in a last-level cache.
constexpr int64_t kPassBytes = int64_t{4} << 20;
// In a bias of this size f32 loses 2^-15; results near 1 lose 2^-12 or more by their own rounding.
constexpr double kLargestInBias = 1024;

Status check_parameter(std::string_view name, const std::optional<TensorView>& parameter, const TensorView& input) {
  if (!parameter) return ok_status();
  QX_RETURN_IF_ERROR(check_kernel_float(name, *parameter));
  if (parameter->dtype() != DType::kFloat32) QX_RETURN_IF_ERROR(check_same_dtype(name, *parameter, "input", input));
  return check_vector(name, *parameter, input.size(1), "the channels of input");
}

Status check_arguments(const TensorView& input, const GroupNormOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_kernel_float("input", input));
  if (input.num_dims() < 2) {
    return invalid_argument("input: expected at least two dimensions, [B, C, ...], got " + input.to_string());
  }
  if (options.num_groups < 1 || input.size(1) % options.num_groups != 0) {
    return invalid_argument("num_groups: expected a divisor of the " + std::to_string(input.size(1)) +
                            " channels of input " + input.to_string() + ", got " + std::to_string(options.num_groups));
  }
  QX_RETURN_IF_ERROR(check_kernel_float("output", output));
  QX_RETURN_IF_ERROR(check_same_dtype("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_same_shape("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_parameter("weight", options.weight, input));
  QX_RETURN_IF_ERROR(check_parameter("bias", options.bias, input));
  if (!(options.eps >= 0) || std::isinf(options.eps)) {
    return invalid_argument("eps: expected a finite number that is not negative, got " + std::to_string(options.eps));
  }
  QX_RETURN_IF_ERROR(check_output("output", output, {{"input", &input}}));
  for (const auto& [name, parameter] : {std::pair{"weight", &options.weight}, std::pair{"bias", &options.bias}}) {
    if (parameter->has_value()) QX_RETURN_IF_ERROR(check_output("output", output, {{name, &parameter->value()}}));
  }
  return ok_status();
}

std::vector<float> parameter_as_f32(const std::optional<TensorView>& parameter, int64_t channels, float absent) {
  std::vector<float> values(static_cast<size_t>(channels), absent);
  if (parameter) {
    load_row_as_f32(parameter->dtype(), parameter->data(), parameter->stride(0), channels, values.data());
  }
  return values;
}

// The dimensions of `view` from 2 on, and the channels after them if they lie side by side, for one sample.
TensorView positions(const TensorView& view, bool with_channels) {
  std::vector<int64_t> shape(view.shape().begin() + 2, view.shape().end());
  std::vector<int64_t> strides(view.strides().begin() + 2, view.strides().end());
  if (with_channels) {
    shape.push_back(view.size(1));
    strides.push_back(1);
  }
  return TensorView::strided(view.data(), view.dtype(), shape, strides).value();
}

struct Problem {
  Problem(const TensorView& from, const GroupNormOptions& given, const TensorView& to)
      : input(from),
        output(to),
        options(given),
        channels(from.size(1)),
        group_channels(channels / given.num_groups),
        bytes(dtype_size_bytes(from.dtype())),
        weight(parameter_as_f32(given.weight, channels, 1)),
        bias(parameter_as_f32(given.bias, channels, 0)) {}

  // (x - mean) * scale + bias of a channel; what f32 takes from the mean joins the bias. In half precision all of it
  // does where that is small, and the kernels leave the mean out. It would not do of equal elements.
  ChannelAffine affine(const GroupStatistics& group, int64_t channel) const {
    const auto c = static_cast<size_t>(channel);
    const double deviation = std::sqrt(std::max(group.squares / group.count, 0.0) + options.eps);
    const auto scale = static_cast<float>(weight[c] / deviation);
    const bool joins = bytes < 4 && std::abs(group.mean * scale) <= kLargestInBias;
    const float mean = joins ? 0.0f : static_cast<float>(group.mean);
    return {mean, scale, static_cast<float>(bias[c] - (group.mean - mean) * scale)};
  }

  const TensorView& input;
  const TensorView& output;
  const GroupNormOptions& options;
  int64_t channels;
  int64_t group_channels;
  int64_t bytes;
  std::vector<float> weight, bias;
};

// Calls body(x, count, y) for the pieces of at most kBlock elements of one channel of one sample.
template <typename Body>
void for_each_piece(const Problem& problem, const RowOffsets& from, const RowOffsets& to, int64_t sample,
                    int64_t channel, const Body& body) {
  const TensorView &input = problem.input, &output = problem.output;
  const char* in = input.data_as<char>() + (sample * input.stride(0) + channel * input.stride(1)) * problem.bytes;
  char* out = output.data_as<char>() + (sample * output.stride(0) + channel * output.stride(1)) * problem.bytes;
  for (int64_t row = 0; row < from.num_rows(); ++row) {
    for (int64_t first = 0; first < from.row_length(); first += kBlock) {
      body(in + (from.offset(row) + first * from.row_stride()) * problem.bytes,
           std::min(kBlock, from.row_length() - first),
           out + (to.offset(row) + first * to.row_stride()) * problem.bytes);
    }
  }
}

// The statistics of the pieces of a run, in their order.
void join_pieces(GroupStatistics& statistics, DType dtype, const char* x, int64_t count) {
  for (int64_t first = 0; first < count; first += kBlock) {
    statistics.join(run_statistics(dtype, x + first * dtype_size_bytes(dtype), std::min(kBlock, count - first)));
  }
}

void normalize_planes(const Problem& problem) {
  const TensorView in = positions(problem.input, false), out = positions(problem.output, false);
  const bool flatten = in.is_contiguous() && out.is_contiguous();
  const RowOffsets from(in, flatten), to(out, flatten);
  const DType dtype = problem.input.dtype();
  const bool dense_in = from.row_stride() == 1, dense_out = to.row_stride() == 1;
  // Planes of a group one after another are one run.
  const bool joined = flatten && problem.input.stride(1) == from.row_length();
  const int64_t groups = problem.options.num_groups;
  const int64_t size = problem.group_channels * from.num_rows() * from.row_length();
  const bool in_place = problem.input.data() == problem.output.data();
  const bool aligned = from.row_length() * problem.bytes % kStreamedAlignmentBytes == 0;
  const bool stream =
      flatten && aligned && writes_past_caches(problem.output, in_place, problem.output.is_contiguous());
  // While a group is written, from L2, the next one travels there.
  const int64_t group_bytes = size * problem.bytes;
  const int64_t ahead = joined && group_bytes <= kFetchedGroupBytes ? fetched_ahead(problem.input, group_bytes) : 0;
  const auto one_group = [&](int64_t sample, int64_t group) {
    float buffer[kBlock];
    const auto load = [&](const char* x, int64_t count) -> GroupRun {
      if (dense_in) return {dtype, x, count, nullptr, problem.options.silu, false, ahead};
      load_row_as_f32(dtype, x, from.row_stride(), count, buffer);
      return {DType::kFloat32, buffer, count, nullptr, problem.options.silu, false, 0};
    };
    const int64_t first = group * problem.group_channels, last = first + problem.group_channels;
    GroupStatistics statistics;
    for (int64_t channel = first; !joined && channel < last; ++channel) {
      for_each_piece(problem, from, to, sample, channel, [&](const char* x, int64_t count, char*) {
        const GroupRun run = load(x, count);
        statistics.join(run_statistics(run.dtype, run.x, count));
      });
    }
    if (joined) {
      const int64_t start = sample * problem.input.stride(0) + first * problem.input.stride(1);
      join_pieces(statistics, dtype, problem.input.data_as<char>() + start * problem.bytes, size);
    }
    for (int64_t channel = first; channel < last; ++channel) {
      const ChannelAffine affine = problem.affine(statistics, channel);
      for_each_piece(problem, from, to, sample, channel, [&](const char* x, int64_t count, char* y) {
        GroupRun run = load(x, count);
        const bool direct = dense_out && run.dtype == dtype;
        if (!direct && run.dtype != DType::kFloat32) {
          load_row_as_f32(dtype, x, 1, count, buffer);
          run.dtype = DType::kFloat32, run.x = buffer;
        }
        run.y = direct ? static_cast<void*>(y) : buffer;
        run.stream = stream && direct;
        normalize_run(run, affine);
        if (!direct) store_row_from_f32(buffer, count, dtype, y, to.row_stride());
      });
    }
  };
  parallel_for(0, problem.input.size(0) * groups, std::max<int64_t>(1, kRowLoopGrain / size),
               [&](int64_t begin, int64_t end) {
                 for (int64_t task = begin; task < end; ++task) one_group(task / groups, task % groups);
                 if (stream) hwy::FlushStream();
               });
}

// Positions whose statistics are taken at once, about: a chain of additions is as long, and a block of 256 KiB is read
// again from an L2 cache.
int64_t positions_of_block(int64_t channels, int64_t positions) {
  const int64_t most = std::clamp<int64_t>(16 * kBlock / channels, 4, 256), blocks = (positions + most - 1) / most;
  return (positions + blocks - 1) / blocks;
}

// Arrays beside rows of channels end with room for what the kernels read and write beyond the last.
size_t padded_channels(const Problem& problem) { return static_cast<size_t>(problem.channels + kParameterPadding); }

// Elements whose mean the sums of a group are taken about: it lies within a deviation of the group's then.
constexpr int64_t kShiftElements = 16;

// Each group's mean over the first rows, or where that is infinite its first element, as `shift` of its channels.
void estimate_means(const Problem& problem, ChannelRows rows, std::span<float> shift, std::span<float> sums) {
  const auto group_channels = static_cast<size_t>(problem.group_channels);
  rows.rows = std::clamp<int64_t>(kShiftElements / problem.group_channels, 1, rows.rows);
  std::ranges::fill(shift, 0.0f);
  float* const first = sums.data();
  channel_moments(rows, shift.data(), first, first + padded_channels(problem));
  load_row_as_f32(rows.dtype, rows.x, 1, problem.channels, shift.data());
  for (size_t c = 0; c < static_cast<size_t>(problem.channels); c += group_channels) {
    const double sum = std::accumulate(first + c, first + c + group_channels, 0.0);
    const double mean = sum / static_cast<double>(rows.rows * problem.group_channels);
    std::fill_n(shift.data() + c, group_channels, std::isfinite(mean) ? static_cast<float>(mean) : shift[c]);
  }
}

// Channels-last: the statistics of all groups over one block of positions, about the mean of its first rows or, where
// that lies far from the others, about the mean that this gave: as CentredMoments.
void block_statistics(const Problem& problem, const ChannelRows& rows, std::span<float> work,
                      std::span<GroupStatistics> groups) {
  const auto group_channels = static_cast<size_t>(problem.group_channels);
  const size_t padded = padded_channels(problem);
  const std::span<float> shift = work.first(padded), arranged = work.subspan(padded, padded);
  const std::span<float> sums = work.subspan(2 * padded, 2 * padded);
  const auto count = static_cast<double>(rows.rows) * static_cast<double>(group_channels);
  estimate_means(problem, rows, shift, sums);
  bool is_far = true;
  for (int pass = 0; pass < 2 && is_far; ++pass) {
    for (size_t g = 0; pass != 0 && g < groups.size(); ++g) {
      std::fill_n(shift.data() + g * group_channels, group_channels, static_cast<float>(groups[g].mean));
    }
    arrange_parameter(rows.dtype, shift.data(), problem.channels, arranged.data());
    channel_moments(rows, arranged.data(), sums.data(), sums.data() + padded);
    is_far = false;
    for (size_t g = 0; g < groups.size(); ++g) {
      double sum = 0, squares = 0;
      for (size_t c = g * group_channels; c < (g + 1) * group_channels; ++c)
        sum += sums[c], squares += sums[padded + c];
      groups[g] = {count, shift[g * group_channels] + sum / count, squares - sum * sum / count};
      is_far = is_far || sum * sum / count > 3 * groups[g].squares;
    }
  }
}

// Calls body(task, sample, rows, first position) for blocks of positions of a channels-last tensor.
struct ChannelsLast {
  explicit ChannelsLast(const Problem& p)
      : problem(p),
        from(positions(p.input, true)),
        to(positions(p.output, true)),
        block(positions_of_block(p.channels, from.num_rows())),
        blocks((from.num_rows() + block - 1) / block),
        dense(positions(p.input, true).is_contiguous() && positions(p.output, true).is_contiguous()) {}

  char* row(const TensorView& view, const RowOffsets& offsets, int64_t sample, int64_t position) const {
    return view.data_as<char>() + (sample * view.stride(0) + offsets.offset(position)) * problem.bytes;
  }
  template <typename Body>
  void for_each_block(int64_t first_sample, int64_t last_sample, const Body& body) const {
    const int64_t grain = std::max<int64_t>(1, kRowLoopGrain / (block * problem.channels));
    parallel_for(first_sample * blocks, last_sample * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % blocks * block;
        body(task, task / blocks, first, std::min(block, from.num_rows() - first));
      }
    });
  }

  const Problem& problem;
  RowOffsets from, to;
  int64_t block;
  int64_t blocks;
  bool dense;  // samples of input and output
};

void gather_statistics(const ChannelsLast& layout, int64_t first_sample, int64_t last_sample,
                       std::span<GroupStatistics> of_blocks) {
  const Problem& problem = layout.problem;
  const auto groups = static_cast<size_t>(problem.options.num_groups);
  const bool dense = positions(problem.input, true).is_contiguous();
  const auto row_bytes = static_cast<size_t>(problem.channels * problem.bytes);
  layout.for_each_block(first_sample, last_sample, [&](int64_t task, int64_t sample, int64_t first, int64_t rows) {
    std::vector<char> buffer(dense ? 0 : static_cast<size_t>(rows) * row_bytes);
    std::vector<float> work(4 * padded_channels(problem));
    for (int64_t r = 0; !dense && r < rows; ++r) {
      std::memcpy(buffer.data() + static_cast<size_t>(r) * row_bytes,
                  layout.row(problem.input, layout.from, sample, first + r), row_bytes);
    }
    const char* x = dense ? layout.row(problem.input, layout.from, sample, first) : buffer.data();
    block_statistics(problem, {problem.input.dtype(), x, rows, problem.channels, problem.channels}, work,
                     of_blocks.subspan(static_cast<size_t>(task) * groups, groups));
  });
}

// Mean, scale and bias of the channels of each sample, as the kernel reads them, in the memory of `arranged`.
std::vector<ChannelArrays> channel_parameters(const ChannelsLast& layout, int64_t first_sample, int64_t last_sample,
                                              std::span<GroupStatistics> of_blocks, std::vector<float>& arranged) {
  const Problem& problem = layout.problem;
  const auto groups = static_cast<size_t>(problem.options.num_groups), blocks = static_cast<size_t>(layout.blocks);
  const auto begin = static_cast<size_t>(first_sample), end = static_cast<size_t>(last_sample);
  const auto channels = static_cast<size_t>(problem.channels);
  const size_t padded = padded_channels(problem);
  std::vector<ChannelArrays> parameters;
  std::vector<float> plain(3 * padded);
  arranged.resize((end - begin) * 3 * padded);
  for (size_t sample = begin; sample < end; ++sample) {
    float* mean = arranged.data() + (sample - begin) * 3 * padded;
    bool has_mean = false;
    for (size_t c = 0; c < channels; ++c) {
      const size_t group = c / static_cast<size_t>(problem.group_channels);
      GroupStatistics& total = of_blocks[sample * blocks * groups + group];
      const bool is_first = c % static_cast<size_t>(problem.group_channels) == 0;
      for (size_t block = 1; is_first && block < blocks; ++block) {
        total.join(of_blocks[(sample * blocks + block) * groups + group]);
      }
      const ChannelAffine one = problem.affine(total, static_cast<int64_t>(c));
      plain[c] = one.mean, plain[padded + c] = one.scale, plain[2 * padded + c] = one.bias;
      has_mean = has_mean || one.mean != 0;
    }
    for (size_t array = 0; array < 3; ++array) {
      arrange_parameter(problem.input.dtype(), plain.data() + array * padded, problem.channels, mean + array * padded);
    }
    parameters.push_back({has_mean, mean, mean + padded, mean + 2 * padded});
  }
  return parameters;
}

void write_block(const ChannelsLast& layout, const GroupRun& form, const ChannelArrays& channels, int64_t sample,
                 int64_t first, int64_t rows) {
  const Problem& problem = layout.problem;
  const int64_t row_bytes = problem.channels * problem.bytes, step = layout.dense ? rows : 1;
  for (int64_t r = first; r < first + rows; r += step) {
    GroupRun run = form;
    run.x = layout.row(problem.input, layout.from, sample, r);
    run.y = layout.row(problem.output, layout.to, sample, r);
    normalize_channels(run, {step, row_bytes, row_bytes}, channels);
  }
  if (form.stream) hwy::FlushStream();
}

void normalize_channels_last(const Problem& problem) {
  const ChannelsLast layout(problem);
  std::vector<GroupStatistics> of_blocks(static_cast<size_t>(problem.input.size(0) * layout.blocks) *
                                         static_cast<size_t>(problem.options.num_groups));
  std::vector<float> arranged;
  const auto rows_of_output = problem.output.transpose(1, -1);
  const bool in_place = problem.input.data() == problem.output.data();
  const bool stream = rows_of_output.ok() && writes_past_caches(rows_of_output.value(), in_place);
  const int64_t samples = problem.input.size(0), bytes = problem.input.size_bytes() / samples;
  const int64_t step = std::max<int64_t>(1, kPassBytes / bytes);
  const int64_t ahead = fetched_ahead(problem.input, step * problem.input.stride(0) * problem.bytes);
  for (int64_t begin = 0; begin < samples; begin += step) {
    const int64_t end = std::min(samples, begin + step);
    gather_statistics(layout, begin, end, of_blocks);
    const std::vector<ChannelArrays> parameters = channel_parameters(layout, begin, end, of_blocks, arranged);
    // While samples are written, from the last-level cache, the next ones travel there.
    const GroupRun form{problem.input.dtype(), nullptr, problem.channels,         nullptr,
                        problem.options.silu,  stream,  end < samples ? ahead : 0};
    layout.for_each_block(begin, end, [&](int64_t, int64_t sample, int64_t first, int64_t rows) {
      write_block(layout, form, parameters[static_cast<size_t>(sample - begin)], sample, first, rows);
    });
  }
}

bool is_channels_last(const TensorView& view) {
  return view.num_dims() > 2 && view.size(1) > 1 && view.stride(1) == 1 && view.stride(-1) != 1;
}

}  // namespace

Status group_norm(const TensorView& input, const GroupNormOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_arguments(input, options, output));
  if (input.num_elements() == 0) return ok_status();
  const Problem problem(input, options, output);
  if (is_channels_last(input) && is_channels_last(output)) {
    normalize_channels_last(problem);
  } else {
    normalize_planes(problem);
  }
  return ok_status();
}

}  // namespace qx::kernels
