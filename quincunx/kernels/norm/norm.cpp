#include "quincunx/kernels/norm/norm.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/dense_rows.h"
#include "quincunx/kernels/convert/row_loop.h"
#include "quincunx/kernels/convert/stream_rule.h"
#include "quincunx/kernels/norm/norm_kernel.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
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
  if (!options.residual) return ok_status();
  // x + residual is written before the parameters are read: to the sum, or to the output where none is wanted.
  const std::string_view first_written = options.sum ? "sum" : "output";
  const TensorView& total = options.sum ? *options.sum : output;
  for (const auto& [name, view] : std::span(others).first(2)) {
    if (view->has_value() && total.num_elements() != 0 && total.data() == (*view)->data()) {
      return invalid_argument(std::string(first_written) + ": is the same memory as " + std::string(name));
    }
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

struct NormTensors {
  NormTensors(const TensorView& input, const NormOptions& options, const TensorView& out)
      : dtype(input.dtype()), length(input.size(-1)), x(input, input.shape()), output(out, input.shape()) {
    if (options.residual) residual = DenseRows(*options.residual, input.shape());
    if (options.sum) sum = DenseRows(*options.sum, input.shape());
    if (options.scale) scale = DenseRows(*options.scale, input.shape());
    if (options.shift) shift = DenseRows(*options.shift, input.shape());
    const bool in_place = out.data() == input.data() || (options.residual && out.data() == options.residual->data());
    const bool sum_in_place =
        options.sum && (options.sum->data() == input.data() || options.sum->data() == options.residual->data());
    is_large = fetched_ahead(input, 1) != 0;
    streams_output = writes_past_caches(out, in_place);
    streams_sum = options.sum && writes_past_caches(*options.sum, sum_in_place);
  }
  int64_t ahead(int64_t bytes) const { return x.is_dense() && is_large ? bytes : 0; }
  bool modulates() const { return scale.exists() || shift.exists(); }

  DType dtype;
  int64_t length;
  bool is_large, streams_output, streams_sum;
  DenseRows x, residual, sum, scale, shift, output;
};

// (x * w + b) (1 + scale) + shift as one product and one sum: the parameters of a row, kept while they stay the same.
class Parameters {
 public:
  Parameters(const NormTensors& tensors, const float* weight, const float* bias)
      : tensors_(tensors), length_(static_cast<size_t>(tensors.length)), weight_(weight), bias_(bias) {
    if (tensors.modulates()) {
      fused_.resize(4 * length_);
    } else {
      arranged_weight_ = arranged(weight, weight_storage_);
      arranged_bias_ = arranged(bias, bias_storage_);
    }
  }
  // Whether `row` has those of the row of the last call of move_to.
  bool fit(int64_t row) const {
    return !tensors_.modulates() || (is_set_ && scale_of(row) == scale_ && shift_of(row) == shift_);
  }
  void move_to(int64_t row) {
    if (fit(row)) return;
    is_set_ = true, scale_ = scale_of(row), shift_ = shift_of(row);
    float *weights = fused_.data(), *biases = weights + length_, *scales = biases + length_, *shifts = scales + length_;
    std::fill_n(scales, 2 * length_, 0.0f);
    if (scale_ != nullptr) tensors_.scale.load_f32(row, scales);
    if (shift_ != nullptr) tensors_.shift.load_f32(row, shifts);
    for (size_t i = 0; i < length_; ++i) {
      const float factor = 1 + scales[i];
      weights[i] = weight_ != nullptr ? weight_[i] * factor : factor;
      biases[i] = bias_ != nullptr ? bias_[i] * factor + shifts[i] : shifts[i];
    }
    arranged_weight_ = arranged(weights, weight_storage_);
    arranged_bias_ = arranged(biases, bias_storage_);
  }
  const float* weight() const { return arranged_weight_; }
  const float* bias() const { return arranged_bias_; }

 private:
  const char* scale_of(int64_t row) const { return tensors_.scale.exists() ? tensors_.scale.at(row) : nullptr; }
  const char* shift_of(int64_t row) const { return tensors_.shift.exists() ? tensors_.shift.at(row) : nullptr; }
  // In the order of the kernel; f32 and f16 rows meet their parameters as they are.
  const float* arranged(const float* values, std::vector<float>& storage) const {
    if (values == nullptr || tensors_.dtype != DType::kBFloat16) return values;
    storage.resize(length_ + kParameterPadding);
    arrange_parameter(tensors_.dtype, values, tensors_.length, storage.data());
    return storage.data();
  }

  const NormTensors& tensors_;
  size_t length_;
  const float* weight_;
  const float* bias_;
  bool is_set_ = false;
  const char* scale_ = nullptr;
  const char* shift_ = nullptr;
  const float* arranged_weight_ = nullptr;
  const float* arranged_bias_ = nullptr;
  std::vector<float> fused_, weight_storage_, bias_storage_;
};

// Runs blocks of rows through the kernel, with memory for the rows that are not dense and for sums that are streamed.
class BlockRunner {
 public:
  BlockRunner(const NormTensors& tensors, bool center, float eps, const float* weight, const float* bias)
      : tensors_(tensors), parameters_(tensors, weight, bias), row_bytes_(tensors.length * element_bytes()) {
    block_ = {.dtype = tensors.dtype,
              .center = center,
              .eps = eps,
              .length = tensors.length,
              .num_rows = 0,
              .weight = nullptr,
              .bias = nullptr,
              .x = {},
              .residual = {},
              .total = {},
              .sum = {},
              .y = {},
              .stream = tensors.streams_output,
              .ahead = 0};
    // With a residual a block stays in L1 between the sums of its rows and their use; other rows are summed two ahead.
    const bool is_ahead = !tensors.residual.exists() && row_bytes_ <= kBlockBytes;
    rows_ = is_ahead ? NormBlock::kMaxRows : std::clamp<int64_t>(kBlockBytes / row_bytes_, 1, kMostWithResidual);
    block_.ahead = tensors.ahead(kFetchedBytes);
    const bool is_dense = tensors.x.is_dense() && tensors.output.is_dense() &&
                          (!tensors.residual.exists() || tensors.residual.is_dense()) &&
                          (!tensors.sum.exists() || tensors.sum.is_dense());
    if (!is_dense || tensors.streams_sum || (tensors.residual.exists() && tensors.streams_output)) {
      spare_.resize(static_cast<size_t>(4 * rows_ * row_bytes_));
    }
  }
  void run(int64_t begin, int64_t end) {
    while (begin < end) {
      parameters_.move_to(begin);
      int64_t last = begin + 1;
      while (last < std::min(end, begin + rows_) && parameters_.fit(last)) ++last;
      run_block(begin, last - begin);
      begin = last;
    }
  }

 private:
  static constexpr int64_t kBlockBytes = 16384;
  static constexpr int64_t kMostWithResidual = 8;
  // How far ahead large tensors are fetched: two pages, where the hardware's own streams would begin anew.
  static constexpr int64_t kFetchedBytes = 8192;

  int64_t element_bytes() const { return dtype_size_bytes(tensors_.dtype); }
  char* spare(int64_t which, int64_t row) {
    return spare_.empty() ? nullptr : spare_.data() + (which * rows_ + row) * row_bytes_;
  }
  void place(int64_t i, int64_t row) {
    block_.x[i] = tensors_.x.dense(row, spare(0, i), true);
    block_.y[i] = tensors_.output.dense(row, spare(1, i), false);
    if (!tensors_.residual.exists()) return;
    block_.residual[i] = tensors_.residual.dense(row, spare(2, i), true);
    if (tensors_.streams_sum || (!tensors_.sum.exists() && tensors_.streams_output)) {
      block_.total[i] = spare(3, i);
      block_.sum[i] = tensors_.streams_sum ? tensors_.sum.at(row) : nullptr;
    } else {
      // The output's row is free until the end: it serves where the sum is not wanted.
      block_.total[i] = tensors_.sum.exists() ? tensors_.sum.dense(row, spare(3, i), false) : block_.y[i];
    }
  }
  void run_block(int64_t first, int64_t count) {
    block_.num_rows = count;
    block_.weight = parameters_.weight(), block_.bias = parameters_.bias();
    for (int64_t i = 0; i < count; ++i) place(i, first + i);
    normalize_block(block_);
    for (int64_t i = 0; i < count; ++i) {
      tensors_.output.put_back(first + i, static_cast<const char*>(block_.y[i]));
      if (tensors_.sum.exists()) tensors_.sum.put_back(first + i, static_cast<const char*>(block_.total[i]));
    }
  }

  const NormTensors& tensors_;
  Parameters parameters_;
  int64_t row_bytes_;
  int64_t rows_ = 1;
  NormBlock block_;
  std::vector<char> spare_;
};

Status normalize_rows(const TensorView& input, const NormOptions& options, const TensorView& output, bool center) {
  QX_RETURN_IF_ERROR(check_arguments(input, options, output));
  if (input.num_elements() == 0) return ok_status();
  std::vector<float> weight_storage, bias_storage;
  const float* weight = parameter_as_f32(options.weight, weight_storage);
  const float* bias = parameter_as_f32(options.bias, bias_storage);
  const NormTensors tensors(input, options, output);
  const int64_t grain = std::max<int64_t>(1, kRowLoopGrain / tensors.length);
  parallel_for(0, input.num_elements() / tensors.length, grain, [&](int64_t begin, int64_t end) {
    BlockRunner(tensors, center, static_cast<float>(options.eps), weight, bias).run(begin, end);
    if (tensors.streams_output || tensors.streams_sum) hwy::FlushStream();
  });
  return ok_status();
}

}  // namespace

Status rms_norm(const TensorView& input, const NormOptions& options, const TensorView& output) {
  if (options.bias) return invalid_argument("bias: rms_norm takes none, got " + options.bias->to_string());
  return normalize_rows(input, options, output, false);
}

Status layer_norm(const TensorView& input, const NormOptions& options, const TensorView& output) {
  return normalize_rows(input, options, output, true);
}

}  // namespace qx::kernels
