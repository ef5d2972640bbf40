#include "quincunx/kernels/rope/rope.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/stream_rule.h"
#include "quincunx/kernels/rope/head_rows.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/rope/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_pair-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

struct Rotated {
  Vector first, second;
};
HWY_INLINE Rotated Rotate(Vector a, Vector b, Vector cos, Vector sin) {
  return {hn::NegMulAdd(b, sin, hn::Mul(a, cos)), hn::MulAdd(a, sin, hn::Mul(b, cos))};
}

// Reads the pairs (x[i], x[i + pairs]) before it writes them: y may be x. cos and sin are in the order of pairs of T.
template <typename T>
HWY_INLINE void RotateHalves(const HeadRows& rows, const T* x, const float* cos, const float* sin, T* y) {
  const Tag d;
  using Pair = FloatPair<Tag>;
  const auto step = static_cast<int64_t>(2 * hn::Lanes(d)), pairs = rows.pairs;
  const auto rotated = [](Pair a, Pair b, Pair c, Pair s, Pair& first, Pair& second) HWY_ATTR {
    const Rotated even = Rotate(a.a, b.a, c.a, s.a), odd = Rotate(a.b, b.b, c.b, s.b);
    first = {even.first, odd.first}, second = {even.second, odd.second};
  };
  Pair first, second;
  int64_t i = 0;
  for (; i + step <= pairs; i += step) {
    FetchAhead(x + 2 * i, static_cast<size_t>(2 * step) * sizeof(T), rows.ahead);
    rotated(LoadPair(d, x + i), LoadPair(d, x + pairs + i), LoadPair(d, cos + i), LoadPair(d, sin + i), first, second);
    StorePair(first, d, y + i, rows.stream);
    StorePair(second, d, y + pairs + i, rows.stream);
  }
  const auto rest = static_cast<size_t>(pairs - i);
  if (rest == 0) return;
  // Interleaved parameters are whole pairs.
  const size_t kept = kPairsAreInterleaved<T> ? static_cast<size_t>(step) : rest;
  rotated(LoadPairTail(d, x + i, rest), LoadPairTail(d, x + pairs + i, rest), LoadPairTail(d, cos + i, kept),
          LoadPairTail(d, sin + i, kept), first, second);
  StorePairTail(first, d, y + i, rest);
  StorePairTail(second, d, y + pairs + i, rest);
}

// `values` in the order of pairs of bf16.
void ArrangeAngles(const float* values, int64_t count, float* arranged) {
  const Tag d;
  const auto step = static_cast<int64_t>(2 * hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= count; i += step) StorePair(LoadPairBeside<BFloat16>(d, values + i), d, arranged + i);
  if (i < count) ArrangeForPairs<BFloat16>(d, values + i, static_cast<size_t>(count - i), arranged + i);
}

template <typename T>
void HalfSplitOf(const HeadRows& rows, const float* cos, const float* sin) {
  for (int64_t head = 0; head < rows.num_heads; ++head) {
    const T* x = static_cast<const T*>(rows.x) + head * rows.x_step;
    T* y = static_cast<T*>(rows.y) + head * rows.y_step;
    RotateHalves(rows, x, cos, sin, y);
    const int64_t copied = rows.head_dim - 2 * rows.pairs;
    if (x != y && copied > 0) {
      std::memcpy(y + 2 * rows.pairs, x + 2 * rows.pairs, static_cast<size_t>(copied) * sizeof(T));
    }
  }
}
void HalfSplitHeads(const HeadRows& rows, const float* cos, const float* sin) {
  if (rows.dtype == DType::kBFloat16) return HalfSplitOf<BFloat16>(rows, cos, sin);
  if (rows.dtype == DType::kFloat16) return HalfSplitOf<Float16>(rows, cos, sin);
  HalfSplitOf<float>(rows, cos, sin);
}

void RotateHalfSplit(const float* x, const float* cos, const float* sin, int64_t pairs, float* y) {
  RotateHalves({DType::kFloat32, x, 0, y, 0, 1, 2 * pairs, pairs, false, 0}, x, cos, sin, y);
}

void RotateInterleaved(const float* x, const float* cos, const float* sin, int64_t pairs, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector a, b;
  int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const Rotated r = Rotate(a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreInterleaved2(r.first, r.second, d, y + 2 * i);
  }
  const auto rest = static_cast<size_t>(pairs - i);
  if (rest == 0) return;
  HWY_ALIGN float buffer[2 * hn::MaxLanes(Tag())] = {};
  for (size_t k = 0; k < 2 * rest; ++k) buffer[k] = x[2 * i + static_cast<int64_t>(k)];
  hn::LoadInterleaved2(d, buffer, a, b);
  const Rotated r = Rotate(a, b, LoadFloatTail(d, cos + i, rest), LoadFloatTail(d, sin + i, rest));
  hn::StoreInterleaved2(r.first, r.second, d, buffer);
  for (size_t k = 0; k < 2 * rest; ++k) y[2 * i + static_cast<int64_t>(k)] = buffer[k];
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(ArrangeAngles);
HWY_EXPORT(HalfSplitHeads);
HWY_EXPORT(RotateHalfSplit);
HWY_EXPORT(RotateInterleaved);

namespace {

// Elements a task handles at least: below this a thread costs more than it saves.
constexpr int64_t kGrain = 16384;
// Room behind arranged angles: they are written in whole pairs of vectors.
constexpr int64_t kAnglePadding = 64;
// How far ahead large tensors are fetched.
constexpr int64_t kFetchedBytes = 4096;

Status check_table(std::string_view name, const TensorView& table) {
  QX_RETURN_IF_ERROR(check_float32(name, table));
  return check_rank(name, table, 2);
}

Status check_arguments(const TensorView& input, const TensorView& cos, const TensorView& sin,
                       const RopeOptions& options, const TensorView& output) {
  if (options.form != RopeForm::kHalfSplit && options.form != RopeForm::kInterleaved) {
    return invalid_argument("form: expected a RopeForm, got " + std::to_string(static_cast<int>(options.form)));
  }
  if (options.sequence_dim != 1 && options.sequence_dim != 2) {
    return invalid_argument("sequence_dim: expected 1 or 2, got " + std::to_string(options.sequence_dim));
  }
  QX_RETURN_IF_ERROR(check_kernel_float("input", input));
  QX_RETURN_IF_ERROR(check_rank("input", input, 4));
  QX_RETURN_IF_ERROR(check_table("cos", cos));
  QX_RETURN_IF_ERROR(check_table("sin", sin));
  QX_RETURN_IF_ERROR(check_same_shape("sin", sin, "cos", cos));
  if (cos.size(0) != input.size(options.sequence_dim)) {
    return invalid_argument("cos: expected one row for each of the " +
                            std::to_string(input.size(options.sequence_dim)) + " positions of input " +
                            input.to_string() + ", got " + cos.to_string());
  }
  if (cos.size(1) > input.size(3) / 2) {
    return invalid_argument("cos: expected at most " + std::to_string(input.size(3) / 2) +
                            " columns, half of the head size of input " + input.to_string() + ", got " +
                            cos.to_string());
  }
  QX_RETURN_IF_ERROR(check_kernel_float("output", output));
  QX_RETURN_IF_ERROR(check_same_dtype("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_same_shape("output", output, "input", input));
  return check_output("output", output, {{"input", &input}, {"cos", &cos}, {"sin", &sin}});
}

// The heads of one position of one batch item.
struct PositionRows {
  const char* input;
  int64_t input_head_stride_bytes;
  int64_t input_stride;
  char* output;
  int64_t output_head_stride_bytes;
  int64_t output_stride;
  int64_t num_heads;
  int64_t head_dim;
  DType dtype;
};

void rotate_position(const PositionRows& rows, RopeForm form, const float* cos, const float* sin, int64_t pairs,
                     float* buffer) {
  const bool direct_input = rows.dtype == DType::kFloat32 && rows.input_stride == 1;
  const bool direct_output = rows.dtype == DType::kFloat32 && rows.output_stride == 1;
  for (int64_t head = 0; head < rows.num_heads; ++head) {
    const char* in = rows.input + head * rows.input_head_stride_bytes;
    char* out = rows.output + head * rows.output_head_stride_bytes;
    if (!direct_input) load_row_as_f32(rows.dtype, in, rows.input_stride, rows.head_dim, buffer);
    const float* x = direct_input ? reinterpret_cast<const float*>(in) : buffer;
    float* y = direct_output ? reinterpret_cast<float*>(out) : buffer;
    if (form == RopeForm::kHalfSplit) {
      HWY_DYNAMIC_DISPATCH(RotateHalfSplit)(x, cos, sin, pairs, y);
    } else {
      HWY_DYNAMIC_DISPATCH(RotateInterleaved)(x, cos, sin, pairs, y);
    }
    if (x != y) std::copy(x + 2 * pairs, x + rows.head_dim, y + 2 * pairs);
    if (!direct_output) store_row_from_f32(buffer, rows.head_dim, rows.dtype, out, rows.output_stride);
  }
}

// Row `row` of a table: in place where it is contiguous, else copied to `buffer`.
const float* table_row(const TensorView& table, int64_t row, float* buffer) {
  if (table.size(1) == 0) return buffer;  // its data may be null
  const float* start = table.data_as<float>() + row * table.stride(0);
  if (table.stride(1) == 1 || table.size(1) == 1) return start;
  load_row_as_f32(DType::kFloat32, start, table.stride(1), table.size(1), buffer);
  return buffer;
}

}  // namespace

Status apply_rope(const TensorView& input, const TensorView& cos, const TensorView& sin, const RopeOptions& options,
                  const TensorView& output) {
  QX_RETURN_IF_ERROR(check_arguments(input, cos, sin, options, output));
  if (input.num_elements() == 0) return ok_status();
  const int sequence_dim = options.sequence_dim == 1 ? 1 : 2;
  const int head_dim_index = sequence_dim == 1 ? 2 : 1;
  const int64_t bytes = dtype_size_bytes(input.dtype());
  const int64_t num_positions = input.size(sequence_dim);
  const int64_t num_heads = input.size(head_dim_index);
  const int64_t head_dim = input.size(3);
  const int64_t pairs = cos.size(1);
  const int64_t grain = std::max<int64_t>(1, kGrain / (num_heads * head_dim));
  const bool dense = options.form == RopeForm::kHalfSplit && input.stride(3) == 1 && output.stride(3) == 1;
  const bool stream = dense && pairs * bytes % kStreamedAlignmentBytes == 0 &&
                      writes_past_caches(output, input.data() == output.data());
  const bool arranged = dense && input.dtype() == DType::kBFloat16;
  const int64_t padded = pairs + kAnglePadding;
  parallel_for(0, input.size(0) * num_positions, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> buffer(static_cast<size_t>(head_dim + 4 * padded));
    float* angles = buffer.data() + head_dim;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t batch = task / num_positions;
      const int64_t position = task % num_positions;
      const auto start = [&](const TensorView& view) {
        return view.data_as<char>() + (batch * view.stride(0) + position * view.stride(sequence_dim)) * bytes;
      };
      const float* cos_row = table_row(cos, position, angles);
      const float* sin_row = table_row(sin, position, angles + padded);
      if (arranged) {
        HWY_DYNAMIC_DISPATCH(ArrangeAngles)(cos_row, pairs, angles + 2 * padded);
        HWY_DYNAMIC_DISPATCH(ArrangeAngles)(sin_row, pairs, angles + 3 * padded);
        cos_row = angles + 2 * padded, sin_row = angles + 3 * padded;
      }
      if (dense) {
        const HeadRows heads{input.dtype(),
                             start(input),
                             input.stride(head_dim_index),
                             start(output),
                             output.stride(head_dim_index),
                             num_heads,
                             head_dim,
                             pairs,
                             stream,
                             fetched_ahead(input, kFetchedBytes)};
        HWY_DYNAMIC_DISPATCH(HalfSplitHeads)(heads, cos_row, sin_row);
        continue;
      }
      const PositionRows rows{start(input),
                              input.stride(head_dim_index) * bytes,
                              input.stride(3),
                              start(output),
                              output.stride(head_dim_index) * bytes,
                              output.stride(3),
                              num_heads,
                              head_dim,
                              input.dtype()};
      rotate_position(rows, options.form, cos_row, sin_row, pairs, buffer.data());
    }
    if (stream) hwy::FlushStream();
  });
  return ok_status();
}

Status fill_rope_tables(const RopeTableOptions& options, const TensorView& cos, const TensorView& sin) {
  if (!(options.theta > 0) || std::isinf(options.theta)) {
    return invalid_argument("theta: expected a positive finite number, got " + std::to_string(options.theta));
  }
  if (!std::isfinite(options.position_scale)) {
    return invalid_argument("position_scale: expected a finite number, got " + std::to_string(options.position_scale));
  }
  QX_RETURN_IF_ERROR(check_table("cos", cos));
  QX_RETURN_IF_ERROR(check_table("sin", sin));
  QX_RETURN_IF_ERROR(check_same_shape("sin", sin, "cos", cos));
  QX_RETURN_IF_ERROR(check_output("cos", cos, {{"sin", &sin}}));
  QX_RETURN_IF_ERROR(check_output("sin", sin, {}));
  if (cos.num_elements() != 0 && cos.data() == sin.data()) return invalid_argument("sin: is the same memory as cos");

  const int64_t pairs = cos.size(1);
  for (int64_t i = 0; i < pairs; ++i) {
    const double frequency = std::pow(options.theta, -static_cast<double>(i) / static_cast<double>(pairs));
    for (int64_t s = 0; s < cos.size(0); ++s) {
      const double position = static_cast<double>(options.first_position + s) * options.position_scale;
      cos.data_as<float>()[s * cos.stride(0) + i * cos.stride(1)] = static_cast<float>(std::cos(position * frequency));
      sin.data_as<float>()[s * sin.stride(0) + i * sin.stride(1)] = static_cast<float>(std::sin(position * frequency));
    }
  }
  return ok_status();
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
