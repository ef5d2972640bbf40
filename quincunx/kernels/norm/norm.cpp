#include "quincunx/kernels/norm/norm.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/row_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/norm/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_storage-inl.h"
#include "quincunx/kernels/norm/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

// y = ((x - mean) * scale - correction * scale) * weight + bias; null weight and bias are left out.
template <bool kCenter, bool kWeight, bool kBias>
HWY_INLINE void Normalize(const float* x, int64_t count, float mean, float correction, float scale, const float* weight,
                          const float* bias, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector m = hn::Set(d, mean);
  const Vector c = hn::Set(d, -correction * scale);
  const Vector s = hn::Set(d, scale);
  const auto apply = [&](Vector v, Vector w, Vector b) HWY_ATTR {
    v = kCenter ? hn::MulAdd(hn::Sub(v, m), s, c) : hn::Mul(v, s);
    if constexpr (kWeight && kBias) return hn::MulAdd(v, w, b);
    if constexpr (kWeight) return hn::Mul(v, w);
    if constexpr (kBias) return hn::Add(v, b);
    return v;
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Vector w = kWeight ? hn::LoadU(d, weight + i) : hn::Zero(d);
    const Vector b = kBias ? hn::LoadU(d, bias + i) : hn::Zero(d);
    hn::StoreU(apply(hn::LoadU(d, x + i), w, b), d, y + i);
  }
  const auto rest = static_cast<size_t>(count - i);
  if (rest == 0) return;
  const Vector w = kWeight ? LoadFloatTail(d, weight + i, rest) : hn::Zero(d);
  const Vector b = kBias ? LoadFloatTail(d, bias + i, rest) : hn::Zero(d);
  StoreFloatTail(apply(LoadFloatTail(d, x + i, rest), w, b), d, y + i, rest);
}

template <bool kCenter>
HWY_INLINE void NormalizeRow(const float* x, int64_t count, float mean, float correction, float scale,
                             const float* weight, const float* bias, float* y) {
  if (weight != nullptr && bias != nullptr) {
    Normalize<kCenter, true, true>(x, count, mean, correction, scale, weight, bias, y);
  } else if (weight != nullptr) {
    Normalize<kCenter, true, false>(x, count, mean, correction, scale, weight, nullptr, y);
  } else if (bias != nullptr) {
    Normalize<kCenter, false, true>(x, count, mean, correction, scale, nullptr, bias, y);
  } else {
    Normalize<kCenter, false, false>(x, count, mean, correction, scale, nullptr, nullptr, y);
  }
}

void RmsNormRow(const float* x, int64_t count, float eps, const float* weight, const float* bias, float* y) {
  const float mean_square = ShiftedMoments<false>(x, count, 0).second / static_cast<float>(count);
  NormalizeRow<false>(x, count, 0, 0, 1 / std::sqrt(mean_square + eps), weight, bias, y);
}

void LayerNormRow(const float* x, int64_t count, float eps, const float* weight, const float* bias, float* y) {
  const RowMoments moments = MomentsOf(x, count);
  const float variance = moments.squares / static_cast<float>(count);
  NormalizeRow<true>(x, count, moments.mean, moments.correction, 1 / std::sqrt(variance + eps), weight, bias, y);
}

void AddRows(const float* a, const float* b, int64_t count, float* sum) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, sum + i);
  for (; i < count; ++i) sum[i] = a[i] + b[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(LayerNormRow);
HWY_EXPORT(AddRows);

namespace {

Status check_parameter(std::string_view name, const std::optional<TensorView>& parameter, const TensorView& input) {
  if (!parameter) return ok_status();
  QX_RETURN_IF_ERROR(check_kernel_float(name, *parameter));
  if (parameter->dtype() != DType::kFloat32) {
    QX_RETURN_IF_ERROR(check_same_dtype(name, *parameter, "input", input));
  }
  return check_vector(name, *parameter, input.size(-1), "the last dimension of input");
}

// Residual and sum: of the input's shape and dtype.
Status check_companion(std::string_view name, const std::optional<TensorView>& view, const TensorView& input) {
  if (!view) return ok_status();
  QX_RETURN_IF_ERROR(check_kernel_float(name, *view));
  QX_RETURN_IF_ERROR(check_same_dtype(name, *view, "input", input));
  return check_same_shape(name, *view, "input", input);
}

// Scale and shift: repeated along the dimensions in which their size is 1.
Status check_modulation(std::string_view name, const std::optional<TensorView>& view, const TensorView& input) {
  if (!view) return ok_status();
  QX_RETURN_IF_ERROR(check_kernel_float(name, *view));
  if (view->dtype() != DType::kFloat32) QX_RETURN_IF_ERROR(check_same_dtype(name, *view, "input", input));
  bool fits = view->num_dims() == input.num_dims() && view->size(-1) == input.size(-1);
  for (int i = 0; fits && i + 1 < view->num_dims(); ++i) fits = view->size(i) == 1 || view->size(i) == input.size(i);
  if (fits) return ok_status();
  return invalid_argument(std::string(name) + ": expected the shape of input " + input.to_string() +
                          ", or 1 in place of any size but the last, got " + view->to_string());
}

Status check_memory(const TensorView& input, const NormOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_output("output", output, {{"input", &input}}));
  // Rows are normalised one after another: a parameter must not change under way.
  const std::pair<std::string_view, const std::optional<TensorView>*> others[] = {
      {"weight", &options.weight}, {"bias", &options.bias},   {"residual", &options.residual},
      {"sum", &options.sum},       {"scale", &options.scale}, {"shift", &options.shift}};
  for (const auto& [name, view] : others) {
    if (view->has_value()) QX_RETURN_IF_ERROR(check_output("output", output, {{name, &view->value()}}));
  }
  if (!options.sum) return ok_status();
  QX_RETURN_IF_ERROR(check_output("sum", *options.sum, {{"input", &input}}));
  for (const auto& [name, view] : others) {
    if (view->has_value() && name != "sum") {
      QX_RETURN_IF_ERROR(check_output("sum", *options.sum, {{name, &view->value()}}));
    }
  }
  if (options.sum->num_elements() != 0 && options.sum->data() == output.data()) {
    return invalid_argument("sum: is the same memory as output");
  }
  return ok_status();
}

Status check_arguments(const TensorView& input, const NormOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_kernel_float("input", input));
  QX_RETURN_IF_ERROR(check_not_scalar("input", input));
  QX_RETURN_IF_ERROR(check_kernel_float("output", output));
  QX_RETURN_IF_ERROR(check_same_dtype("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_same_shape("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_parameter("weight", options.weight, input));
  QX_RETURN_IF_ERROR(check_parameter("bias", options.bias, input));
  QX_RETURN_IF_ERROR(check_companion("residual", options.residual, input));
  QX_RETURN_IF_ERROR(check_companion("sum", options.sum, input));
  QX_RETURN_IF_ERROR(check_modulation("scale", options.scale, input));
  QX_RETURN_IF_ERROR(check_modulation("shift", options.shift, input));
  if (options.sum && !options.residual) return invalid_argument("sum: expected a residual with it, got none");
  if (!(options.eps >= 0) || std::isinf(options.eps)) {
    return invalid_argument("eps: expected a finite number that is not negative, got " + std::to_string(options.eps));
  }
  return check_memory(input, options, output);
}

// The parameter as contiguous f32: its own memory where it is that already, else a copy in `storage`.
const float* parameter_as_f32(const std::optional<TensorView>& parameter, std::vector<float>& storage) {
  if (!parameter || parameter->num_elements() == 0) return nullptr;
  if (parameter->dtype() == DType::kFloat32 && parameter->is_contiguous()) return parameter->data_as<float>();
  storage.resize(static_cast<size_t>(parameter->size(0)));
  load_row_as_f32(parameter->dtype(), parameter->data(), parameter->stride(0), parameter->size(0), storage.data());
  return storage.data();
}

// One tensor's rows; a broadcast dimension has stride 0.
class Rows {
 public:
  Rows() = default;
  Rows(const TensorView& view, std::span<const int64_t> shape) : data_(view.data_as<char>()), dtype_(view.dtype()) {
    int64_t strides[TensorView::kMaxDims] = {};
    for (size_t i = 0; i < shape.size(); ++i) {
      const int dim = static_cast<int>(i);
      strides[i] = view.size(dim) == 1 && shape[i] != 1 ? 0 : view.stride(dim);
    }
    offsets_.emplace(TensorView::strided(view.data(), dtype_, shape, {strides, shape.size()}).value());
  }

  bool exists() const { return offsets_.has_value(); }
  bool is_float32() const { return dtype_ == DType::kFloat32; }
  bool is_plain() const { return is_float32() && offsets_->row_stride() == 1; }
  char* at(int64_t row) const { return data_ + offsets_->offset(row) * dtype_size_bytes(dtype_); }
  // The row as contiguous f32: its own memory, or a copy in `buffer`.
  const float* load(int64_t row, float* buffer) const {
    if (is_plain()) return reinterpret_cast<const float*>(at(row));
    load_row_as_f32(dtype_, at(row), offsets_->row_stride(), offsets_->row_length(), buffer);
    return buffer;
  }
  void store(const float* values, int64_t row) const {
    store_row_from_f32(values, offsets_->row_length(), dtype_, at(row), offsets_->row_stride());
  }

 private:
  char* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  std::optional<RowOffsets> offsets_;
};

struct NormTensors {
  NormTensors(const TensorView& input, const NormOptions& options, const TensorView& out)
      : x(input, input.shape()), output(out, input.shape()) {
    if (options.residual) residual = Rows(*options.residual, input.shape());
    if (options.sum) sum = Rows(*options.sum, input.shape());
    if (options.scale) scale = Rows(*options.scale, input.shape());
    if (options.shift) shift = Rows(*options.shift, input.shape());
  }
  bool modulates() const { return scale.exists() || shift.exists(); }

  Rows x, residual, sum, scale, shift, output;
};

// input + residual, rounded to the tensors' dtype as the sum that is written.
const float* add_residual(const NormTensors& tensors, int64_t row, int64_t length, float* buffer, float* spare) {
  const float* x = tensors.x.load(row, buffer);
  const float* residual = tensors.residual.load(row, spare);
  const Rows& rounded = tensors.sum.exists() ? tensors.sum : tensors.output;
  float* to = rounded.is_plain() && tensors.sum.exists() ? reinterpret_cast<float*>(rounded.at(row)) : buffer;
  HWY_DYNAMIC_DISPATCH(AddRows)(x, residual, length, to);
  if (to != buffer || (!tensors.sum.exists() && rounded.is_float32())) return to;
  // The output's row is free until the end: it serves to round where the sum is not wanted.
  rounded.store(buffer, row);
  return rounded.load(row, buffer);
}

// (x * w + b) (1 + scale) + shift as one product and one sum: the parameters of a row, kept while they stay the same.
class Modulation {
 public:
  Modulation(const NormTensors& tensors, int64_t length, const float* weight, const float* bias)
      : tensors_(tensors), length_(static_cast<size_t>(length)), weight_(weight), bias_(bias) {
    if (!tensors.modulates()) return;
    fused_weight_.resize(length_);
    fused_bias_.resize(length_);
    spare_.resize(2 * length_);
  }
  void move_to(int64_t row) {
    const char* scale = tensors_.scale.exists() ? tensors_.scale.at(row) : nullptr;
    const char* shift = tensors_.shift.exists() ? tensors_.shift.at(row) : nullptr;
    if (is_set_ && scale == scale_ && shift == shift_) return;
    is_set_ = true, scale_ = scale, shift_ = shift;
    const float* scales = scale != nullptr ? tensors_.scale.load(row, spare_.data()) : nullptr;
    const float* shifts = shift != nullptr ? tensors_.shift.load(row, spare_.data() + length_) : nullptr;
    for (size_t i = 0; i < length_; ++i) {
      const float factor = scales != nullptr ? 1 + scales[i] : 1;
      fused_weight_[i] = weight_ != nullptr ? weight_[i] * factor : factor;
      fused_bias_[i] = (bias_ != nullptr ? bias_[i] * factor : 0) + (shifts != nullptr ? shifts[i] : 0);
    }
  }
  const float* weight() const { return fused_weight_.empty() ? weight_ : fused_weight_.data(); }
  const float* bias() const { return fused_bias_.empty() ? bias_ : fused_bias_.data(); }

 private:
  const NormTensors& tensors_;
  size_t length_;
  const float* weight_;
  const float* bias_;
  bool is_set_ = false;
  const char* scale_ = nullptr;
  const char* shift_ = nullptr;
  std::vector<float> fused_weight_, fused_bias_, spare_;
};

// Calls kernel(x, weight, bias, y) for each row.
template <typename Kernel>
Status normalize_rows(const TensorView& input, const NormOptions& options, const TensorView& output,
                      const Kernel& kernel) {
  QX_RETURN_IF_ERROR(check_arguments(input, options, output));
  if (input.num_elements() == 0) return ok_status();
  std::vector<float> weight_storage, bias_storage;
  const float* weight = parameter_as_f32(options.weight, weight_storage);
  const float* bias = parameter_as_f32(options.bias, bias_storage);
  const NormTensors tensors(input, options, output);
  const int64_t length = input.size(-1);
  const int64_t grain = std::max<int64_t>(1, kRowLoopGrain / length);
  parallel_for(0, input.num_elements() / length, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> buffer(static_cast<size_t>(2 * length));
    Modulation modulation(tensors, length, weight, bias);
    for (int64_t row = begin; row < end; ++row) {
      const float* x = tensors.residual.exists()
                           ? add_residual(tensors, row, length, buffer.data(), buffer.data() + length)
                           : tensors.x.load(row, buffer.data());
      if (tensors.modulates()) modulation.move_to(row);
      float* y = tensors.output.is_plain() ? reinterpret_cast<float*>(tensors.output.at(row)) : buffer.data();
      kernel(x, modulation.weight(), modulation.bias(), y);
      if (!tensors.output.is_plain()) tensors.output.store(y, row);
    }
  });
  return ok_status();
}

}  // namespace

Status rms_norm(const TensorView& input, const NormOptions& options, const TensorView& output) {
  if (options.bias) return invalid_argument("bias: rms_norm takes none, got " + options.bias->to_string());
  const auto eps = static_cast<float>(options.eps);
  return normalize_rows(input, options, output, [&](const float* x, const float* weight, const float* bias, float* y) {
    HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, input.size(-1), eps, weight, bias, y);
  });
}

Status layer_norm(const TensorView& input, const NormOptions& options, const TensorView& output) {
  const auto eps = static_cast<float>(options.eps);
  return normalize_rows(input, options, output, [&](const float* x, const float* weight, const float* bias, float* y) {
    HWY_DYNAMIC_DISPATCH(LayerNormRow)(x, input.size(-1), eps, weight, bias, y);
  });
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
