#include "quincunx/kernels/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/row_loop.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/cross_entropy/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/softmax/softmax_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

float BlockMax(const float* x, int64_t count) { return LargestOf(x, count); }
float BlockSumOfExp(const float* x, int64_t count, float shift) { return SumOfExp<false>(x, count, shift, nullptr); }

float BlockSum(const float* x, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, x + i));
    s1 = hn::Add(s1, hn::LoadU(d, x + i + lanes));
  }
  float rest = 0;
  for (; i < count; ++i) rest += x[i];
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1))) + rest;
}

// y = scale * (exp(x - log_sum_exp) - even)
void BlockGradient(const float* x, int64_t count, float log_sum_exp, float scale, float even, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto offset = hn::Set(d, log_sum_exp);
  const auto factor = hn::Set(d, scale);
  const auto spread = hn::Set(d, even);
  const auto apply = [&](hn::Vec<decltype(d)> v)
                         HWY_ATTR { return hn::Mul(factor, hn::Sub(ExpOfDifference(d, hn::Sub(v, offset)), spread)); };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(apply(hn::LoadU(d, x + i)), d, y + i);
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) StoreFloatTail(apply(LoadFloatTail(d, x + i, rest)), d, y + i, rest);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(BlockMax);
HWY_EXPORT(BlockSumOfExp);
HWY_EXPORT(BlockSum);
HWY_EXPORT(BlockGradient);

namespace {

// Logits handled at a time: 8 KiB of f32, in L1 for both passes over it.
constexpr int64_t kBlock = 2048;

Status check_targets(const TensorView& targets, int64_t rows, int64_t classes, int64_t ignore_index) {
  if (targets.dtype() != DType::kInt64 && targets.dtype() != DType::kInt32) {
    return type_error("targets: expected int64 or int32, got " + targets.to_string());
  }
  QX_RETURN_IF_ERROR(check_vector("targets", targets, rows, "one a row of logits"));
  if (targets.data() == nullptr && rows != 0) return invalid_argument("targets: null data for " + targets.to_string());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * targets.stride(0);
    const int64_t target =
        targets.dtype() == DType::kInt64 ? targets.data_as<int64_t>()[at] : targets.data_as<int32_t>()[at];
    if (target != ignore_index && (target < 0 || target >= classes)) {
      return invalid_argument("targets[" + std::to_string(r) + "]: expected 0 to " + std::to_string(classes - 1) +
                              " or the ignored " + std::to_string(ignore_index) + ", got " + std::to_string(target));
    }
  }
  return ok_status();
}

Status check_loss(std::string_view name, const TensorView& loss, int64_t rows, LossReduction reduction) {
  QX_RETURN_IF_ERROR(check_float32(name, loss));
  if (reduction == LossReduction::kNone) return check_vector(name, loss, rows, "one a row of logits");
  return check_rank(name, loss, 0);
}

Status check_shared(const TensorView& logits, const TensorView& targets, const CrossEntropyOptions& options,
                    const TensorView& log_sum_exp) {
  QX_RETURN_IF_ERROR(check_kernel_float("logits", logits));
  QX_RETURN_IF_ERROR(check_rank("logits", logits, 2));
  if (logits.size(1) == 0 && logits.size(0) != 0) {
    return invalid_argument("logits: expected at least one class, got " + logits.to_string());
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    return invalid_argument("label_smoothing: expected 0 to 1, got " + std::to_string(options.label_smoothing));
  }
  if (options.reduction < LossReduction::kNone || options.reduction > LossReduction::kSum) {
    return invalid_argument("reduction: expected a LossReduction, got " +
                            std::to_string(static_cast<int>(options.reduction)));
  }
  QX_RETURN_IF_ERROR(check_float32("log_sum_exp", log_sum_exp));
  QX_RETURN_IF_ERROR(check_vector("log_sum_exp", log_sum_exp, logits.size(0), "one a row of logits"));
  if (!log_sum_exp.is_contiguous()) {
    return invalid_argument("log_sum_exp: expected contiguous memory, got " + log_sum_exp.to_string() + " of stride " +
                            std::to_string(log_sum_exp.stride(0)));
  }
  return check_targets(targets, logits.size(0), logits.size(1), options.ignore_index);
}

// The rows of the logits as blocks of f32.
class LogitRow {
 public:
  LogitRow(const TensorView& logits, int64_t row)
      : dtype_(logits.dtype()),
        stride_(logits.stride(1)),
        bytes_(dtype_size_bytes(dtype_)),
        data_(logits.data_as<char>() + row * logits.stride(0) * bytes_) {}

  const float* load(int64_t first, int64_t count, float* buffer) const {
    const char* from = data_ + first * stride_ * bytes_;
    if (dtype_ == DType::kFloat32 && stride_ == 1) return reinterpret_cast<const float*>(from);
    load_row_as_f32(dtype_, from, stride_, count, buffer);
    return buffer;
  }
  float at(int64_t index) const {
    float value = 0;
    load_row_as_f32(dtype_, data_ + index * stride_ * bytes_, 1, 1, &value);
    return value;
  }

 private:
  DType dtype_;
  int64_t stride_;
  int64_t bytes_;
  const char* data_;
};

int64_t target_of(const TensorView& targets, int64_t row) {
  const int64_t at = row * targets.stride(0);
  return targets.dtype() == DType::kInt64 ? targets.data_as<int64_t>()[at] : targets.data_as<int32_t>()[at];
}

struct RowSums {
  float log_sum_exp;
  double sum_of_logits;
};

// One pass: the maximum so far and the sum relative to it, which is rescaled when a block brings a larger one.
RowSums sum_row(const LogitRow& row, int64_t classes, bool wants_sum) {
  float largest = -std::numeric_limits<float>::infinity();
  double sum = 0, total = 0;
  float buffer[kBlock];
  for (int64_t first = 0; first < classes; first += kBlock) {
    const int64_t count = std::min(kBlock, classes - first);
    const float* x = row.load(first, count, buffer);
    const float block_max = HWY_DYNAMIC_DISPATCH(BlockMax)(x, count);
    // A block of -inf only adds nothing, unless a NaN hides in it.
    const float shift = std::max(largest, block_max);
    if (!std::isinf(shift) || shift > 0) {
      if (shift > largest) sum *= std::exp(static_cast<double>(largest) - shift);
      sum += HWY_DYNAMIC_DISPATCH(BlockSumOfExp)(x, count, shift);
      largest = shift;
    } else if (std::isnan(HWY_DYNAMIC_DISPATCH(BlockSum)(x, count))) {
      sum = std::numeric_limits<double>::quiet_NaN();
    }
    if (wants_sum) total += HWY_DYNAMIC_DISPATCH(BlockSum)(x, count);
  }
  return {static_cast<float>(largest + std::log(sum)), total};
}

// The sum in f64, row after row.
float reduced(const std::vector<float>& losses, int64_t num_counted, LossReduction reduction) {
  double sum = 0;
  for (const float loss : losses) sum += loss;
  return static_cast<float>(reduction == LossReduction::kMean ? sum / static_cast<double>(num_counted) : sum);
}

int64_t count_rows(const TensorView& targets, int64_t ignore_index) {
  int64_t counted = 0;
  for (int64_t r = 0; r < targets.size(0); ++r) counted += target_of(targets, r) != ignore_index;
  return counted;
}

}  // namespace

Result<LossReduction> loss_reduction_from_name(std::string_view name) {
  if (name == "none") return LossReduction::kNone;
  if (name == "mean") return LossReduction::kMean;
  if (name == "sum") return LossReduction::kSum;
  return invalid_argument("reduction: expected none, mean or sum, got '" + std::string(name) + "'");
}

Status cross_entropy(const TensorView& logits, const TensorView& targets, const CrossEntropyOptions& options,
                     const TensorView& loss, const TensorView& log_sum_exp) {
  QX_RETURN_IF_ERROR(check_shared(logits, targets, options, log_sum_exp));
  const int64_t rows = logits.size(0), classes = logits.size(1);
  QX_RETURN_IF_ERROR(check_loss("loss", loss, rows, options.reduction));
  QX_RETURN_IF_ERROR(check_output("loss", loss, {{"logits", &logits}, {"log_sum_exp", &log_sum_exp}}));
  QX_RETURN_IF_ERROR(check_output("log_sum_exp", log_sum_exp, {{"logits", &logits}}));
  std::vector<float> losses(static_cast<size_t>(rows));
  const double smoothing = options.label_smoothing;
  parallel_for(0, rows, std::max<int64_t>(1, kRowLoopGrain / std::max<int64_t>(classes, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r) {
                   const LogitRow row(logits, r);
                   const RowSums sums = sum_row(row, classes, smoothing > 0);
                   log_sum_exp.data_as<float>()[r] = sums.log_sum_exp;
                   const int64_t target = target_of(targets, r);
                   if (target == options.ignore_index) continue;
                   const double lse = sums.log_sum_exp;
                   double value = lse - row.at(target);
                   if (smoothing > 0) {
                     const double even = lse - sums.sum_of_logits / static_cast<double>(classes);
                     value = (1 - smoothing) * value + smoothing * even;
                   }
                   losses[static_cast<size_t>(r)] = static_cast<float>(value);
                 }
               });
  if (options.reduction != LossReduction::kNone) {
    *loss.data_as<float>() = reduced(losses, count_rows(targets, options.ignore_index), options.reduction);
    return ok_status();
  }
  for (int64_t r = 0; r < rows; ++r) loss.data_as<float>()[r * loss.stride(0)] = losses[static_cast<size_t>(r)];
  return ok_status();
}

namespace {

// What the gradient of a row takes from its loss.
struct RowGradient {
  float log_sum_exp;
  float scale;  // 0 for an ignored row
  float even;
  float at_target;
  int64_t target;  // -1 for an ignored row
};

void write_gradient(const LogitRow& row, const RowGradient& gradient, const TensorView& output, int64_t index) {
  const int64_t bytes = dtype_size_bytes(output.dtype());
  char* start = output.data_as<char>() + index * output.stride(0) * bytes;
  const int64_t stride = output.stride(1);
  float in_buffer[kBlock], out_buffer[kBlock];
  for (int64_t first = 0; first < output.size(1); first += kBlock) {
    const int64_t count = std::min(kBlock, output.size(1) - first);
    char* to = start + first * stride * bytes;
    const bool direct = output.dtype() == DType::kFloat32 && stride == 1;
    float* y = direct ? reinterpret_cast<float*>(to) : out_buffer;
    if (gradient.target < 0) {
      std::fill_n(y, count, 0.0f);
    } else {
      const float* x = row.load(first, count, in_buffer);
      HWY_DYNAMIC_DISPATCH(BlockGradient)(x, count, gradient.log_sum_exp, gradient.scale, gradient.even, y);
      const int64_t target = gradient.target - first;
      if (target >= 0 && target < count) y[target] -= gradient.at_target;
    }
    if (!direct) store_row_from_f32(y, count, output.dtype(), to, stride);
  }
}

}  // namespace

Status cross_entropy_backward(const TensorView& logits, const TensorView& targets, const TensorView& log_sum_exp,
                              const TensorView& grad_loss, const CrossEntropyOptions& options,
                              const TensorView& grad_logits) {
  QX_RETURN_IF_ERROR(check_shared(logits, targets, options, log_sum_exp));
  const int64_t rows = logits.size(0), classes = logits.size(1);
  QX_RETURN_IF_ERROR(check_loss("grad_loss", grad_loss, rows, options.reduction));
  QX_RETURN_IF_ERROR(check_kernel_float("grad_logits", grad_logits));
  QX_RETURN_IF_ERROR(check_same_dtype("grad_logits", grad_logits, "logits", logits));
  QX_RETURN_IF_ERROR(check_same_shape("grad_logits", grad_logits, "logits", logits));
  QX_RETURN_IF_ERROR(check_output("grad_logits", grad_logits, {{"logits", &logits}, {"log_sum_exp", &log_sum_exp}}));
  QX_RETURN_IF_ERROR(check_output("grad_logits", grad_logits, {{"grad_loss", &grad_loss}}));
  if (rows == 0) return ok_status();
  const double smoothing = options.label_smoothing;
  const auto even = static_cast<float>(smoothing / static_cast<double>(classes));
  const auto counted = static_cast<double>(count_rows(targets, options.ignore_index));
  const double divisor = options.reduction == LossReduction::kMean ? counted : 1;
  const int64_t step = options.reduction == LossReduction::kNone ? grad_loss.stride(0) : 0;
  parallel_for(0, rows, std::max<int64_t>(1, kRowLoopGrain / classes), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t target = target_of(targets, r);
      const double scale = grad_loss.data_as<float>()[r * step] / divisor;
      const RowGradient gradient{log_sum_exp.data_as<float>()[r], static_cast<float>(scale), even,
                                 static_cast<float>(scale * (1 - smoothing)),
                                 target == options.ignore_index ? -1 : target};
      write_gradient(LogitRow(logits, r), gradient, grad_logits, r);
    }
  });
  return ok_status();
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
