#include "quincunx/kernels/elementwise/unary.h"

#include <algorithm>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/row_offsets.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/elementwise/unary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_storage-inl.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

#define QX_UNARY_ROW(name)                                                                          \
  void name##Row(const float* input, int64_t count, float* output) {                                \
    const hn::ScalableTag<float> d;                                                                 \
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));                                          \
    int64_t i = 0;                                                                                  \
    for (; i + lanes <= count; i += lanes) {                                                        \
      hn::StoreU(name(d, hn::LoadU(d, input + i)), d, output + i);                                  \
    }                                                                                               \
    const auto rest = static_cast<size_t>(count - i);                                               \
    if (rest != 0) StoreFloatTail(name(d, LoadFloatTail(d, input + i, rest)), d, output + i, rest); \
  }
QX_UNARY_ROW(Exp)
QX_UNARY_ROW(Log)
QX_UNARY_ROW(Erf)
QX_UNARY_ROW(Tanh)
QX_UNARY_ROW(Sigmoid)
QX_UNARY_ROW(Silu)
QX_UNARY_ROW(GeluErf)
QX_UNARY_ROW(GeluTanh)
#undef QX_UNARY_ROW

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(ExpRow);
HWY_EXPORT(LogRow);
HWY_EXPORT(ErfRow);
HWY_EXPORT(TanhRow);
HWY_EXPORT(SigmoidRow);
HWY_EXPORT(SiluRow);
HWY_EXPORT(GeluErfRow);
HWY_EXPORT(GeluTanhRow);

namespace {

// Elements a step handles: 4 KiB of f32, inside L1 together with its input.
constexpr int64_t kChunk = 1024;
// Elements a task handles at least: below this a thread costs more than it saves.
constexpr int64_t kGrain = 16384;

void apply_to_row(UnaryFunction function, const float* input, int64_t count, float* output) {
  switch (function) {
    case UnaryFunction::kExp: return HWY_DYNAMIC_DISPATCH(ExpRow)(input, count, output);
    case UnaryFunction::kLog: return HWY_DYNAMIC_DISPATCH(LogRow)(input, count, output);
    case UnaryFunction::kErf: return HWY_DYNAMIC_DISPATCH(ErfRow)(input, count, output);
    case UnaryFunction::kTanh: return HWY_DYNAMIC_DISPATCH(TanhRow)(input, count, output);
    case UnaryFunction::kSigmoid: return HWY_DYNAMIC_DISPATCH(SigmoidRow)(input, count, output);
    case UnaryFunction::kSilu: return HWY_DYNAMIC_DISPATCH(SiluRow)(input, count, output);
    case UnaryFunction::kGeluErf: return HWY_DYNAMIC_DISPATCH(GeluErfRow)(input, count, output);
    case UnaryFunction::kGeluTanh: return HWY_DYNAMIC_DISPATCH(GeluTanhRow)(input, count, output);
  }
}

// One piece of at most kChunk elements. f32 rows are computed in place, others by way of a buffer.
void apply_to_piece(UnaryFunction function, DType dtype, const char* input, int64_t input_stride, int64_t count,
                    char* output, int64_t output_stride) {
  if (dtype == DType::kFloat32 && input_stride == 1 && output_stride == 1) {
    return apply_to_row(function, reinterpret_cast<const float*>(input), count, reinterpret_cast<float*>(output));
  }
  float buffer[kChunk];
  load_row_as_f32(dtype, input, input_stride, count, buffer);
  apply_to_row(function, buffer, count, buffer);
  store_row_from_f32(buffer, count, dtype, output, output_stride);
}

Status apply_to_span(UnaryFunction function, std::span<const float> input, std::span<float> output) {
  if (input.size() != output.size()) {
    return invalid_argument("output: expected the length of input, " + std::to_string(input.size()) + ", got " +
                            std::to_string(output.size()));
  }
  const int64_t shape[] = {static_cast<int64_t>(input.size())};
  QX_ASSIGN_OR_RETURN(const auto in, TensorView::contiguous(const_cast<float*>(input.data()), DType::kFloat32, shape));
  QX_ASSIGN_OR_RETURN(const auto out, TensorView::contiguous(output.data(), DType::kFloat32, shape));
  return apply_unary(function, in, out);
}

}  // namespace

Status apply_unary(UnaryFunction function, const TensorView& input, const TensorView& output) {
  if (function < UnaryFunction::kExp || function > UnaryFunction::kGeluTanh) {
    return invalid_argument("function: expected a UnaryFunction, got " + std::to_string(static_cast<int>(function)));
  }
  QX_RETURN_IF_ERROR(check_kernel_float("input", input));
  QX_RETURN_IF_ERROR(check_kernel_float("output", output));
  QX_RETURN_IF_ERROR(check_same_dtype("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_same_shape("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_output("output", output, {{"input", &input}}));
  if (input.num_elements() == 0) return ok_status();

  const bool flatten = input.is_contiguous() && output.is_contiguous();
  const RowOffsets from(input, flatten);
  const RowOffsets to(output, flatten);
  const int64_t bytes = dtype_size_bytes(input.dtype());
  const int64_t pieces = (from.row_length() + kChunk - 1) / kChunk;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::min(kChunk, from.row_length()));
  parallel_for(0, from.num_rows() * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % pieces * kChunk;
      const int64_t count = std::min(kChunk, from.row_length() - first);
      const int64_t in = from.offset(task / pieces) + first * from.row_stride();
      const int64_t out = to.offset(task / pieces) + first * to.row_stride();
      apply_to_piece(function, input.dtype(), input.data_as<char>() + in * bytes, from.row_stride(), count,
                     output.data_as<char>() + out * bytes, to.row_stride());
    }
  });
  return ok_status();
}

Status exp(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kExp, input, output);
}
Status log(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kLog, input, output);
}
Status erf(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kErf, input, output);
}
Status tanh(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kTanh, input, output);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
