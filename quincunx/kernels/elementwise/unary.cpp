#include "quincunx/kernels/elementwise/unary.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/row_offsets.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/elementwise/unary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_storage-inl.h"
#include "quincunx/kernels/elementwise/activations-inl.h"
#include "quincunx/kernels/elementwise/sin_cos-inl.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

#define QX_UNARY_ROW(name, function)                                                                    \
  void name##Row(const float* input, int64_t count, float* output) {                                    \
    const hn::ScalableTag<float> d;                                                                     \
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));                                              \
    int64_t i = 0;                                                                                      \
    for (; i + lanes <= count; i += lanes) {                                                            \
      hn::StoreU(function(d, hn::LoadU(d, input + i)), d, output + i);                                  \
    }                                                                                                   \
    const auto rest = static_cast<size_t>(count - i);                                                   \
    if (rest != 0) StoreFloatTail(function(d, LoadFloatTail(d, input + i, rest)), d, output + i, rest); \
  }
QX_UNARY_ROW(Exp, FastExp)
QX_UNARY_ROW(Log, Log)
QX_UNARY_ROW(Erf, Erf)
QX_UNARY_ROW(Tanh, Tanh)
QX_UNARY_ROW(Sigmoid, Sigmoid)
QX_UNARY_ROW(Silu, Silu)
QX_UNARY_ROW(GeluErf, GeluErf)
QX_UNARY_ROW(GeluTanh, GeluTanh)
QX_UNARY_ROW(Sin, Sin)
QX_UNARY_ROW(Cos, Cos)
QX_UNARY_ROW(Rsqrt, Rsqrt)
QX_UNARY_ROW(Relu, Relu)
QX_UNARY_ROW(Relu6, Relu6)
QX_UNARY_ROW(GeluQuick, GeluQuick)
QX_UNARY_ROW(Hardsigmoid, Hardsigmoid)
QX_UNARY_ROW(Hardswish, Hardswish)
QX_UNARY_ROW(Softplus, Softplus)
#undef QX_UNARY_ROW

void MultiplyRow(const float* a, const float* b, int64_t count, float* output) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, output + i);
  for (; i < count; ++i) output[i] = a[i] * b[i];
}

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
HWY_EXPORT(SinRow);
HWY_EXPORT(CosRow);
HWY_EXPORT(RsqrtRow);
HWY_EXPORT(ReluRow);
HWY_EXPORT(Relu6Row);
HWY_EXPORT(GeluQuickRow);
HWY_EXPORT(HardsigmoidRow);
HWY_EXPORT(HardswishRow);
HWY_EXPORT(SoftplusRow);
HWY_EXPORT(MultiplyRow);

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
    case UnaryFunction::kSin: return HWY_DYNAMIC_DISPATCH(SinRow)(input, count, output);
    case UnaryFunction::kCos: return HWY_DYNAMIC_DISPATCH(CosRow)(input, count, output);
    case UnaryFunction::kRsqrt: return HWY_DYNAMIC_DISPATCH(RsqrtRow)(input, count, output);
    case UnaryFunction::kRelu: return HWY_DYNAMIC_DISPATCH(ReluRow)(input, count, output);
    case UnaryFunction::kRelu6: return HWY_DYNAMIC_DISPATCH(Relu6Row)(input, count, output);
    case UnaryFunction::kGeluQuick: return HWY_DYNAMIC_DISPATCH(GeluQuickRow)(input, count, output);
    case UnaryFunction::kHardsigmoid: return HWY_DYNAMIC_DISPATCH(HardsigmoidRow)(input, count, output);
    case UnaryFunction::kHardswish: return HWY_DYNAMIC_DISPATCH(HardswishRow)(input, count, output);
    case UnaryFunction::kSoftplus: return HWY_DYNAMIC_DISPATCH(SoftplusRow)(input, count, output);
  }
}

// The part of a tensor's row that a task handles.
struct Piece {
  char* data;
  int64_t stride;
  DType dtype;

  bool is_plain() const { return dtype == DType::kFloat32 && stride == 1; }
  float* plain() const { return reinterpret_cast<float*>(data); }
};

// At most kChunk elements. f32 rows are computed in place, others by way of a buffer.
void apply_to_piece(UnaryFunction function, const Piece& input, int64_t count, const Piece& output) {
  if (input.is_plain() && output.is_plain()) return apply_to_row(function, input.plain(), count, output.plain());
  float buffer[kChunk];
  load_row_as_f32(input.dtype, input.data, input.stride, count, buffer);
  apply_to_row(function, buffer, count, buffer);
  store_row_from_f32(buffer, count, output.dtype, output.data, output.stride);
}

void gate_piece(UnaryFunction function, const Piece& gate, const Piece& up, int64_t count, const Piece& output) {
  float gates[kChunk], ups[kChunk];
  if (!gate.is_plain()) load_row_as_f32(gate.dtype, gate.data, gate.stride, count, gates);
  if (!up.is_plain()) load_row_as_f32(up.dtype, up.data, up.stride, count, ups);
  apply_to_row(function, gate.is_plain() ? gate.plain() : gates, count, gates);
  const float* factor = up.is_plain() ? up.plain() : ups;
  HWY_DYNAMIC_DISPATCH(MultiplyRow)(gates, factor, count, output.is_plain() ? output.plain() : gates);
  if (!output.is_plain()) store_row_from_f32(gates, count, output.dtype, output.data, output.stride);
}

Status check_function(UnaryFunction function) {
  const auto number = static_cast<int>(function);
  if (number >= 0 && number < kNumUnaryFunctions) return ok_status();
  return invalid_argument("function: expected a UnaryFunction, got " + std::to_string(number));
}

// The tensors of an element-by-element call, cut into pieces of one row.
template <size_t kCount, typename Body>
void for_each_piece(const TensorView* const (&views)[kCount], const Body& body) {
  const bool flatten = std::all_of(views, views + kCount, [](const TensorView* view) { return view->is_contiguous(); });
  std::vector<RowOffsets> rows;
  for (const TensorView* view : views) rows.emplace_back(*view, flatten);
  const int64_t length = rows[0].row_length();
  const int64_t bytes = dtype_size_bytes(views[0]->dtype());
  const int64_t pieces = (length + kChunk - 1) / kChunk;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::min(kChunk, length));
  parallel_for(0, rows[0].num_rows() * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % pieces * kChunk;
      Piece at[kCount];
      for (size_t i = 0; i < kCount; ++i) {
        const int64_t offset = rows[i].offset(task / pieces) + first * rows[i].row_stride();
        at[i] = {static_cast<char*>(views[i]->data()) + offset * bytes, rows[i].row_stride(), views[i]->dtype()};
      }
      body(at, std::min(kChunk, length - first));
    }
  });
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

Result<UnaryFunction> unary_function_from_name(std::string_view name) {
  static constexpr std::string_view kNames[] = {"exp",      "log",        "erf",         "tanh",      "sigmoid", "silu",
                                                "gelu_erf", "gelu_tanh",  "sin",         "cos",       "rsqrt",   "relu",
                                                "relu6",    "gelu_quick", "hardsigmoid", "hardswish", "softplus"};
  static_assert(std::size(kNames) == kNumUnaryFunctions);
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found != std::end(kNames)) return static_cast<UnaryFunction>(found - std::begin(kNames));
  std::string known;
  for (const std::string_view each : kNames) known += (known.empty() ? "" : ", ") + std::string(each);
  return invalid_argument("function: expected one of " + known + ", got '" + std::string(name) + "'");
}

Status apply_unary(UnaryFunction function, const TensorView& input, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_function(function));
  QX_RETURN_IF_ERROR(check_kernel_float("input", input));
  QX_RETURN_IF_ERROR(check_kernel_float("output", output));
  QX_RETURN_IF_ERROR(check_same_dtype("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_same_shape("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_output("output", output, {{"input", &input}}));
  if (input.num_elements() == 0) return ok_status();
  for_each_piece<2>({&input, &output},
                    [&](const Piece(&at)[2], int64_t count) { apply_to_piece(function, at[0], count, at[1]); });
  return ok_status();
}

Status apply_gated(UnaryFunction function, const TensorView& gate, const TensorView& up, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_function(function));
  QX_RETURN_IF_ERROR(check_kernel_float("gate", gate));
  for (const auto& [name, view] : {NamedView{"up", &up}, NamedView{"output", &output}}) {
    QX_RETURN_IF_ERROR(check_kernel_float(name, *view));
    QX_RETURN_IF_ERROR(check_same_dtype(name, *view, "gate", gate));
    QX_RETURN_IF_ERROR(check_same_shape(name, *view, "gate", gate));
  }
  QX_RETURN_IF_ERROR(check_output("output", output, {{"gate", &gate}, {"up", &up}}));
  if (gate.num_elements() == 0) return ok_status();
  for_each_piece<3>({&gate, &up, &output},
                    [&](const Piece(&at)[3], int64_t count) { gate_piece(function, at[0], at[1], count, at[2]); });
  return ok_status();
}

Status exp(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kExp, input, output);
}
Status log(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kLog, input, output);
}
Status sin(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kSin, input, output);
}
Status cos(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kCos, input, output);
}
Status tanh(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kTanh, input, output);
}
Status erf(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kErf, input, output);
}
Status sigmoid(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kSigmoid, input, output);
}
Status rsqrt(std::span<const float> input, std::span<float> output) {
  return apply_to_span(UnaryFunction::kRsqrt, input, output);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
