#include "quincunx/kernels/elementwise/unary.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/row_offsets.h"
#include "quincunx/kernels/convert/stream_rule.h"
#include "quincunx/kernels/elementwise/element_row.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/elementwise/unary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_pair-inl.h"
#include "quincunx/kernels/elementwise/activations-inl.h"
#include "quincunx/kernels/elementwise/rough_math-inl.h"
#include "quincunx/kernels/elementwise/sin_cos-inl.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

#define QX_FUNCTION(name, function)           \
  struct name##Function {                     \
    template <class D, class V>               \
    HWY_INLINE V operator()(D d, V x) const { \
      return function(d, x);                  \
    }                                         \
  };
QX_FUNCTION(Silu, Silu)
QX_FUNCTION(GeluErf, GeluErf)
QX_FUNCTION(GeluTanh, GeluTanh)

// F of both vectors of a row of T.
template <class F, typename T, class D>
HWY_INLINE FloatPair<D> OfPair(D d, FloatPair<D> x) {
  if constexpr (HasRoughMath<T>(D())) {
    if constexpr (std::is_same_v<F, SiluFunction>) return RoughSilu(d, x);
    if constexpr (std::is_same_v<F, GeluErfFunction>) return RoughGeluErf(d, x);
    if constexpr (std::is_same_v<F, GeluTanhFunction>) return RoughGeluTanh(d, x);
  }
  const F function;
  return {function(d, x.a), function(d, x.b)};
}

// y = F(x), or F(x) * factor with kGated, of a multiple of two vectors.
template <class F, bool kGated, typename T>
HWY_NOINLINE void WholeVectors(const T* x, const T* factor, T* y, int64_t count, bool stream, int64_t ahead) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(2 * hn::Lanes(d));
  for (int64_t i = 0; i < count; i += step) {
    auto pair = OfPair<F, T>(d, LoadPair(d, x + i));
    if constexpr (kGated) {
      FetchAhead(x + i, static_cast<size_t>(step) * sizeof(T), ahead);
      FetchAhead(factor + i, static_cast<size_t>(step) * sizeof(T), ahead);
      const auto factors = LoadPair(d, factor + i);
      pair = {hn::Mul(pair.a, factors.a), hn::Mul(pair.b, factors.b)};
    }
    StorePair<NaNBits::kOfBFloat16>(pair, d, y + i, stream);
  }
}

template <class F, bool kGated, typename T>
void Row(const ElementRow& row) {
  constexpr size_t kStep = 2 * hn::MaxLanes(hn::ScalableTag<float>());
  const auto *x = static_cast<const T*>(row.x), *factor = static_cast<const T*>(row.factor);
  auto* y = static_cast<T*>(row.y);
  const int64_t whole = row.count - row.count % static_cast<int64_t>(2 * hn::Lanes(hn::ScalableTag<float>()));
  WholeVectors<F, kGated>(x, factor, y, whole, row.stream, row.ahead);
  const auto rest = static_cast<size_t>(row.count - whole);
  if (rest == 0) return;
  T inputs[kStep] = {}, factors[kStep] = {}, results[kStep];
  std::copy_n(x + whole, rest, inputs);
  if constexpr (kGated) std::copy_n(factor + whole, rest, factors);
  WholeVectors<F, kGated>(inputs, factors, results, kStep, false, 0);
  std::copy_n(results, rest, y + whole);
}

// The activations of networks: every dtype in registers, with and without a factor.
template <class F>
void ActivationRow(const ElementRow& row) {
  const bool gated = row.factor != nullptr;
  switch (row.dtype) {
    case DType::kBFloat16: return gated ? Row<F, true, BFloat16>(row) : Row<F, false, BFloat16>(row);
    case DType::kFloat16: return gated ? Row<F, true, Float16>(row) : Row<F, false, Float16>(row);
    default: return gated ? Row<F, true, float>(row) : Row<F, false, float>(row);
  }
}
QX_FUNCTION(Sigmoid, Sigmoid)
QX_FUNCTION(Relu, Relu)
#define QX_ACTIVATION(name) \
  void name##Row(const ElementRow& row) { ActivationRow<name##Function>(row); }
QX_ACTIVATION(Sigmoid)
QX_ACTIVATION(Silu)
QX_ACTIVATION(GeluErf)
QX_ACTIVATION(GeluTanh)
QX_ACTIVATION(Relu)
#undef QX_ACTIVATION

// Others take longer than a buffer: f32 without a factor.
#define QX_UNARY(name, function) \
  QX_FUNCTION(name, function)    \
  void name##Row(const ElementRow& row) { Row<name##Function, false, float>(row); }
QX_UNARY(Exp, FastExp)
QX_UNARY(Log, Log)
QX_UNARY(Erf, Erf)
QX_UNARY(Tanh, Tanh)
QX_UNARY(Sin, Sin)
QX_UNARY(Cos, Cos)
QX_UNARY(Rsqrt, Rsqrt)
QX_UNARY(Relu6, Relu6)
QX_UNARY(GeluQuick, GeluQuick)
QX_UNARY(Hardsigmoid, Hardsigmoid)
QX_UNARY(Hardswish, Hardswish)
QX_UNARY(Softplus, Softplus)
#undef QX_UNARY
#undef QX_FUNCTION

void MultiplyRow(const float* a, const float* b, int64_t count, float* output) {
  for (int64_t i = 0; i < count; ++i) output[i] = a[i] * b[i];
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

// Elements of a strided row that pass through a buffer at a time: 4 KiB of f32, inside L1 together with its input.
constexpr int64_t kChunk = 1024;
// Elements a task handles at least: below this a thread costs more than it saves.
constexpr int64_t kGrain = 16384;
// How far ahead large gated tensors are fetched.
constexpr int64_t kFetchedBytes = 8192;

void apply_to_row(UnaryFunction function, const ElementRow& row) {
  switch (function) {
    case UnaryFunction::kExp: return HWY_DYNAMIC_DISPATCH(ExpRow)(row);
    case UnaryFunction::kLog: return HWY_DYNAMIC_DISPATCH(LogRow)(row);
    case UnaryFunction::kErf: return HWY_DYNAMIC_DISPATCH(ErfRow)(row);
    case UnaryFunction::kTanh: return HWY_DYNAMIC_DISPATCH(TanhRow)(row);
    case UnaryFunction::kSigmoid: return HWY_DYNAMIC_DISPATCH(SigmoidRow)(row);
    case UnaryFunction::kSilu: return HWY_DYNAMIC_DISPATCH(SiluRow)(row);
    case UnaryFunction::kGeluErf: return HWY_DYNAMIC_DISPATCH(GeluErfRow)(row);
    case UnaryFunction::kGeluTanh: return HWY_DYNAMIC_DISPATCH(GeluTanhRow)(row);
    case UnaryFunction::kSin: return HWY_DYNAMIC_DISPATCH(SinRow)(row);
    case UnaryFunction::kCos: return HWY_DYNAMIC_DISPATCH(CosRow)(row);
    case UnaryFunction::kRsqrt: return HWY_DYNAMIC_DISPATCH(RsqrtRow)(row);
    case UnaryFunction::kRelu: return HWY_DYNAMIC_DISPATCH(ReluRow)(row);
    case UnaryFunction::kRelu6: return HWY_DYNAMIC_DISPATCH(Relu6Row)(row);
    case UnaryFunction::kGeluQuick: return HWY_DYNAMIC_DISPATCH(GeluQuickRow)(row);
    case UnaryFunction::kHardsigmoid: return HWY_DYNAMIC_DISPATCH(HardsigmoidRow)(row);
    case UnaryFunction::kHardswish: return HWY_DYNAMIC_DISPATCH(HardswishRow)(row);
    case UnaryFunction::kSoftplus: return HWY_DYNAMIC_DISPATCH(SoftplusRow)(row);
  }
}

// The part of a tensor's row that a task handles.
struct Piece {
  char* data;
  int64_t stride;
};

// Whether the function's kernel takes every dtype and a factor.
bool is_activation(UnaryFunction function) {
  switch (function) {
    case UnaryFunction::kSigmoid:
    case UnaryFunction::kSilu:
    case UnaryFunction::kGeluErf:
    case UnaryFunction::kGeluTanh:
    case UnaryFunction::kRelu: return true;
    default: return false;
  }
}

// At most kChunk elements, by way of buffers.
void apply_by_buffer(UnaryFunction function, DType dtype, std::span<const Piece> at, int64_t count) {
  float values[kChunk], factors[kChunk];
  load_row_as_f32(dtype, at[0].data, at[0].stride, count, values);
  apply_to_row(function, {DType::kFloat32, values, nullptr, values, count, false, 0});
  if (at.size() == 3) {
    load_row_as_f32(dtype, at[1].data, at[1].stride, count, factors);
    HWY_DYNAMIC_DISPATCH(MultiplyRow)(values, factors, count, values);
  }
  store_row_from_f32(values, count, dtype, at.back().data, at.back().stride);
}

Status check_function(UnaryFunction function) {
  const auto number = static_cast<int>(function);
  if (number >= 0 && number < kNumUnaryFunctions) return ok_status();
  return invalid_argument("function: expected a UnaryFunction, got " + std::to_string(number));
}

// Input, perhaps factor, and output of one shape and dtype, cut into pieces of one row.
template <size_t kCount>
void apply_to_tensors(UnaryFunction function, const TensorView* const (&views)[kCount]) {
  const TensorView& output = *views[kCount - 1];
  const bool flat = std::all_of(views, views + kCount, [](const TensorView* view) { return view->is_contiguous(); });
  std::array<RowOffsets, kCount> rows = [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    return std::array{RowOffsets(*views[kAt], flat)...};
  }(std::make_index_sequence<kCount>());
  const DType dtype = output.dtype();
  const bool dense = (is_activation(function) || (kCount == 2 && dtype == DType::kFloat32)) &&
                     std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.row_stride() == 1; });
  const bool in_place = output.data() == views[0]->data() || output.data() == views[kCount - 2]->data();
  const bool stream = dense && writes_past_caches(output, in_place, flat);
  // Rows of a gate and its factor in turn begin the hardware's streams anew with every page.
  const int64_t ahead = kCount == 3 ? fetched_ahead(output, kFetchedBytes) : 0;
  const int64_t length = rows[0].row_length();
  const int64_t piece = std::min(dense ? kGrain : kChunk, length);
  const int64_t pieces = (length + piece - 1) / piece;
  parallel_for(0, rows[0].num_rows() * pieces, std::max<int64_t>(1, kGrain / piece), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % pieces * piece, count = std::min(piece, length - first);
      Piece at[kCount];
      for (size_t i = 0; i < kCount; ++i) {
        const int64_t offset = rows[i].offset(task / pieces) + first * rows[i].row_stride();
        at[i] = {static_cast<char*>(views[i]->data()) + offset * dtype_size_bytes(dtype), rows[i].row_stride()};
      }
      if (dense) {
        apply_to_row(function, {dtype, at[0].data, kCount == 3 ? at[1].data : nullptr, at[kCount - 1].data, count,
                                stream, ahead});
      } else {
        apply_by_buffer(function, dtype, at, count);
      }
    }
    if (stream) hwy::FlushStream();
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
  apply_to_tensors<2>(function, {&input, &output});
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
  apply_to_tensors<3>(function, {&gate, &up, &output});
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
