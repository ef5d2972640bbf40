#include "quincunx/kernels/norm/group_norm.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/row_loop.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/norm/group_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/elementwise/vector_math-inl.h"
#include "quincunx/kernels/norm/group_statistics.h"
#include "quincunx/kernels/norm/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

GroupStatistics PlaneStatistics(const float* x, int64_t count) {
  const RowMoments moments = MomentsOf(x, count);
  return {static_cast<double>(count), static_cast<double>(moments.mean) + moments.correction, moments.squares};
}

// Of `rows` rows of `channels` elements, for each channel: the sums of x - shift and of its square.
void ChannelMoments(const float* x, int64_t rows, int64_t channels, const float* shift, float* first, float* second) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) {
    const Vector offset = hn::LoadU(d, shift + c);
    Vector a = hn::Zero(d), b = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const Vector v = hn::Sub(hn::LoadU(d, x + r * channels + c), offset);
      a = hn::Add(a, v);
      b = hn::MulAdd(v, v, b);
    }
    hn::StoreU(a, d, first + c);
    hn::StoreU(b, d, second + c);
  }
  for (; c < channels; ++c) {
    first[c] = second[c] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const float v = x[r * channels + c] - shift[c];
      first[c] += v;
      second[c] += v * v;
    }
  }
}

template <bool kSilu>
HWY_INLINE Vector Affine(Vector x, Vector mean, Vector scale, Vector bias) {
  const Tag d;
  const Vector y = hn::MulAdd(hn::Sub(x, mean), scale, bias);
  if constexpr (kSilu) return Silu(d, y);
  return y;
}

template <bool kSilu>
HWY_INLINE void NormalizePlane(const float* x, int64_t count, const ChannelAffine& channel, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector m = hn::Set(d, channel.mean), s = hn::Set(d, channel.scale), b = hn::Set(d, channel.bias);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Affine<kSilu>(hn::LoadU(d, x + i), m, s, b), d, y + i);
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) StoreFloatTail(Affine<kSilu>(LoadFloatTail(d, x + i, rest), m, s, b), d, y + i, rest);
}

template <bool kSilu>
HWY_INLINE void NormalizeChannels(const float* x, int64_t channels, const ChannelArrays& arrays, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) {
    const Vector m = hn::LoadU(d, arrays.mean + c), s = hn::LoadU(d, arrays.scale + c);
    hn::StoreU(Affine<kSilu>(hn::LoadU(d, x + c), m, s, hn::LoadU(d, arrays.bias + c)), d, y + c);
  }
  const auto rest = static_cast<size_t>(channels - c);
  if (rest == 0) return;
  const Vector m = LoadFloatTail(d, arrays.mean + c, rest), s = LoadFloatTail(d, arrays.scale + c, rest);
  const Vector b = LoadFloatTail(d, arrays.bias + c, rest);
  StoreFloatTail(Affine<kSilu>(LoadFloatTail(d, x + c, rest), m, s, b), d, y + c, rest);
}

void PlaneRow(const float* x, int64_t count, const ChannelAffine& channel, bool silu, float* y) {
  silu ? NormalizePlane<true>(x, count, channel, y) : NormalizePlane<false>(x, count, channel, y);
}
void ChannelsRow(const float* x, int64_t channels, const ChannelArrays& arrays, bool silu, float* y) {
  silu ? NormalizeChannels<true>(x, channels, arrays, y) : NormalizeChannels<false>(x, channels, arrays, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(PlaneStatistics);
HWY_EXPORT(ChannelMoments);
HWY_EXPORT(PlaneRow);
HWY_EXPORT(ChannelsRow);

namespace {

// Elements whose statistics are taken at once: 16 KiB of f32, in L1 for both passes over them.
constexpr int64_t kBlock = 4096;

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

  // (x - mean) * scale + bias of a channel; what f32 takes from the mean joins the bias.
  ChannelAffine affine(const GroupStatistics& group, int64_t channel) const {
    const auto c = static_cast<size_t>(channel);
    const auto mean = static_cast<float>(group.mean);
    const double deviation = std::sqrt(std::max(group.squares / group.count, 0.0) + options.eps);
    const double scale = weight[c] / deviation;
    return {mean, static_cast<float>(scale), static_cast<float>(bias[c] - (group.mean - mean) * scale)};
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

void normalize_planes(const Problem& problem) {
  const TensorView in = positions(problem.input, false), out = positions(problem.output, false);
  const bool flatten = in.is_contiguous() && out.is_contiguous();
  const RowOffsets from(in, flatten), to(out, flatten);
  const DType dtype = problem.input.dtype();
  const bool direct_in = dtype == DType::kFloat32 && from.row_stride() == 1;
  const bool direct_out = dtype == DType::kFloat32 && to.row_stride() == 1;
  const int64_t groups = problem.options.num_groups;
  const int64_t size = problem.group_channels * from.num_rows() * from.row_length();
  const auto one_group = [&](int64_t sample, int64_t group) {
    float buffer[kBlock];
    const auto load = [&](const char* x, int64_t count) {
      if (direct_in) return reinterpret_cast<const float*>(x);
      load_row_as_f32(dtype, x, from.row_stride(), count, buffer);
      return static_cast<const float*>(buffer);
    };
    const int64_t first = group * problem.group_channels, last = first + problem.group_channels;
    GroupStatistics statistics;
    for (int64_t channel = first; channel < last; ++channel) {
      for_each_piece(problem, from, to, sample, channel, [&](const char* x, int64_t count, char*) {
        statistics.join(HWY_DYNAMIC_DISPATCH(PlaneStatistics)(load(x, count), count));
      });
    }
    for (int64_t channel = first; channel < last; ++channel) {
      const ChannelAffine affine = problem.affine(statistics, channel);
      for_each_piece(problem, from, to, sample, channel, [&](const char* x, int64_t count, char* y) {
        float* result = direct_out ? reinterpret_cast<float*>(y) : buffer;
        HWY_DYNAMIC_DISPATCH(PlaneRow)(load(x, count), count, affine, problem.options.silu, result);
        if (!direct_out) store_row_from_f32(buffer, count, dtype, y, to.row_stride());
      });
    }
  };
  parallel_for(0, problem.input.size(0) * groups, std::max<int64_t>(1, kRowLoopGrain / size),
               [&](int64_t begin, int64_t end) {
                 for (int64_t task = begin; task < end; ++task) one_group(task / groups, task % groups);
               });
}

// Positions whose statistics are taken at once; depends on the number of channels alone.
int64_t positions_of_block(int64_t channels) { return std::clamp<int64_t>(4 * kBlock / channels, 4, 256); }

// Channels-last: the statistics of all groups over one block of positions.
void block_statistics(const Problem& problem, const float* x, int64_t rows, std::span<GroupStatistics> groups) {
  const auto channels = static_cast<size_t>(problem.channels);
  const auto group_channels = static_cast<size_t>(problem.group_channels);
  std::vector<float> work(3 * channels, 0);
  float *shift = work.data(), *first = shift + channels, *second = first + channels;
  const auto count = static_cast<double>(rows) * static_cast<double>(group_channels);
  HWY_DYNAMIC_DISPATCH(ChannelMoments)(x, rows, problem.channels, shift, first, second);
  for (size_t g = 0; g < groups.size(); ++g) {
    double sum = 0;
    for (size_t c = g * group_channels; c < (g + 1) * group_channels; ++c) sum += first[c];
    std::fill_n(shift + g * group_channels, group_channels, static_cast<float>(sum / count));
  }
  HWY_DYNAMIC_DISPATCH(ChannelMoments)(x, rows, problem.channels, shift, first, second);
  for (size_t g = 0; g < groups.size(); ++g) {
    double sum = 0, squares = 0;
    for (size_t c = g * group_channels; c < (g + 1) * group_channels; ++c) sum += first[c], squares += second[c];
    groups[g] = {count, shift[g * group_channels] + sum / count, squares - sum * sum / count};
  }
}

// Calls body(task, sample, rows, first position) for blocks of positions of a channels-last tensor.
struct ChannelsLast {
  explicit ChannelsLast(const Problem& p)
      : problem(p),
        from(positions(p.input, true)),
        to(positions(p.output, true)),
        block(positions_of_block(p.channels)),
        blocks((from.num_rows() + block - 1) / block) {}

  char* row(const TensorView& view, const RowOffsets& offsets, int64_t sample, int64_t position) const {
    return view.data_as<char>() + (sample * view.stride(0) + offsets.offset(position)) * problem.bytes;
  }
  template <typename Body>
  void for_each_block(const Body& body) const {
    const int64_t grain = std::max<int64_t>(1, kRowLoopGrain / (block * problem.channels));
    parallel_for(0, problem.input.size(0) * blocks, grain, [&](int64_t begin, int64_t end) {
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
};

void gather_statistics(const ChannelsLast& layout, std::span<GroupStatistics> of_blocks) {
  const Problem& problem = layout.problem;
  const auto groups = static_cast<size_t>(problem.options.num_groups);
  const bool dense = problem.input.dtype() == DType::kFloat32 && positions(problem.input, true).is_contiguous();
  layout.for_each_block([&](int64_t task, int64_t sample, int64_t first, int64_t rows) {
    std::vector<float> buffer(dense ? 0 : static_cast<size_t>(rows * problem.channels));
    const char* start = layout.row(problem.input, layout.from, sample, first);
    for (int64_t r = 0; !dense && r < rows; ++r) {
      load_row_as_f32(problem.input.dtype(), layout.row(problem.input, layout.from, sample, first + r), 1,
                      problem.channels, buffer.data() + r * problem.channels);
    }
    block_statistics(problem, dense ? reinterpret_cast<const float*>(start) : buffer.data(), rows,
                     of_blocks.subspan(static_cast<size_t>(task) * groups, groups));
  });
}

void normalize_channels_last(const Problem& problem) {
  const ChannelsLast layout(problem);
  const auto groups = static_cast<size_t>(problem.options.num_groups);
  const auto samples = static_cast<size_t>(problem.input.size(0));
  const auto channels = static_cast<size_t>(problem.channels);
  std::vector<GroupStatistics> of_blocks(samples * static_cast<size_t>(layout.blocks) * groups);
  gather_statistics(layout, of_blocks);
  std::vector<float> affine(samples * 3 * channels);
  for (size_t sample = 0; sample < samples; ++sample) {
    for (size_t c = 0; c < channels; ++c) {
      const size_t group = c / static_cast<size_t>(problem.group_channels);
      GroupStatistics& total = of_blocks[sample * static_cast<size_t>(layout.blocks) * groups + group];
      const bool is_first = c % static_cast<size_t>(problem.group_channels) == 0;
      for (size_t block = 1; is_first && block < static_cast<size_t>(layout.blocks); ++block) {
        total.join(of_blocks[(sample * static_cast<size_t>(layout.blocks) + block) * groups + group]);
      }
      const ChannelAffine one = problem.affine(total, static_cast<int64_t>(c));
      float* to = &affine[sample * 3 * channels + c];
      to[0] = one.mean, to[channels] = one.scale, to[2 * channels] = one.bias;
    }
  }
  const DType dtype = problem.input.dtype();
  const bool direct = dtype == DType::kFloat32;
  layout.for_each_block([&](int64_t, int64_t sample, int64_t first, int64_t rows) {
    std::vector<float> buffer(direct ? 0 : channels);
    const float* mean = &affine[static_cast<size_t>(sample) * 3 * channels];
    const ChannelArrays arrays{mean, mean + channels, mean + 2 * channels};
    for (int64_t r = first; r < first + rows; ++r) {
      const char* in = layout.row(problem.input, layout.from, sample, r);
      char* out = layout.row(problem.output, layout.to, sample, r);
      if (!direct) load_row_as_f32(dtype, in, 1, problem.channels, buffer.data());
      const float* x = direct ? reinterpret_cast<const float*>(in) : buffer.data();
      float* y = direct ? reinterpret_cast<float*>(out) : buffer.data();
      HWY_DYNAMIC_DISPATCH(ChannelsRow)(x, problem.channels, arrays, problem.options.silu, y);
      if (!direct) store_row_from_f32(buffer.data(), problem.channels, dtype, out, 1);
    }
  });
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
#endif  // HWY_ONCE
