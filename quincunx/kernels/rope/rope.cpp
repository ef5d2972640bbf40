#include "quincunx/kernels/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/rope/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

struct Pair {
  Vector first, second;
};
HWY_INLINE Pair Rotate(Vector a, Vector b, Vector cos, Vector sin) {
  return {hn::NegMulAdd(b, sin, hn::Mul(a, cos)), hn::MulAdd(a, sin, hn::Mul(b, cos))};
}

// Reads the pairs (x[i], x[i + pairs]) before it writes them: y may be x.
void RotateHalfSplit(const float* x, const float* cos, const float* sin, int64_t pairs, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const Pair r =
        Rotate(hn::LoadU(d, x + i), hn::LoadU(d, x + pairs + i), hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreU(r.first, d, y + i);
    hn::StoreU(r.second, d, y + pairs + i);
  }
  const auto rest = static_cast<size_t>(pairs - i);
  if (rest == 0) return;
  const Pair r = Rotate(LoadFloatTail(d, x + i, rest), LoadFloatTail(d, x + pairs + i, rest),
                        LoadFloatTail(d, cos + i, rest), LoadFloatTail(d, sin + i, rest));
  StoreFloatTail(r.first, d, y + i, rest);
  StoreFloatTail(r.second, d, y + pairs + i, rest);
}

void RotateInterleaved(const float* x, const float* cos, const float* sin, int64_t pairs, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector a, b;
  int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const Pair r = Rotate(a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreInterleaved2(r.first, r.second, d, y + 2 * i);
  }
  const auto rest = static_cast<size_t>(pairs - i);
  if (rest == 0) return;
  HWY_ALIGN float buffer[2 * hn::MaxLanes(Tag())] = {};
  for (size_t k = 0; k < 2 * rest; ++k) buffer[k] = x[2 * i + static_cast<int64_t>(k)];
  hn::LoadInterleaved2(d, buffer, a, b);
  const Pair r = Rotate(a, b, LoadFloatTail(d, cos + i, rest), LoadFloatTail(d, sin + i, rest));
  hn::StoreInterleaved2(r.first, r.second, d, buffer);
  for (size_t k = 0; k < 2 * rest; ++k) y[2 * i + static_cast<int64_t>(k)] = buffer[k];
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(RotateHalfSplit);
HWY_EXPORT(RotateInterleaved);

namespace {

// Elements a task handles at least: below this a thread costs more than it saves.
constexpr int64_t kGrain = 16384;

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
  parallel_for(0, input.size(0) * num_positions, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> buffer(static_cast<size_t>(head_dim + 2 * pairs));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t batch = task / num_positions;
      const int64_t position = task % num_positions;
      const auto start = [&](const TensorView& view) {
        return view.data_as<char>() + (batch * view.stride(0) + position * view.stride(sequence_dim)) * bytes;
      };
      const PositionRows rows{start(input),
                              input.stride(head_dim_index) * bytes,
                              input.stride(3),
                              start(output),
                              output.stride(head_dim_index) * bytes,
                              output.stride(3),
                              num_heads,
                              head_dim,
                              input.dtype()};
      const float* cos_row = table_row(cos, position, buffer.data() + head_dim);
      const float* sin_row = table_row(sin, position, buffer.data() + head_dim + pairs);
      rotate_position(rows, options.form, cos_row, sin_row, pairs, buffer.data());
    }
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
