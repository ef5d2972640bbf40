#include "quincunx/kernels/cross_entropy/cross_entropy.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/convert.h"
#include "quincunx/kernels/convert/row_loop.h"
#include "quincunx/kernels/convert/stream_rule.h"
#include "quincunx/kernels/cross_entropy/logit_block.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/cross_entropy/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/softmax/softmax_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

// Calls body with the logits as a pointer to their type.
template <class Body>
HWY_INLINE auto WithType(const LogitBlock& block, const Body& body) {
  if (block.dtype == DType::kBFloat16) return body(static_cast<const BFloat16*>(block.x));
  if (block.dtype == DType::kFloat16) return body(static_cast<const Float16*>(block.x));
  return body(static_cast<const float*>(block.x));
}

float BlockMax(const LogitBlock& block) {
  return WithType(block, [&](const auto* x) HWY_ATTR { return LargestOf(x, block.count); });
}
// Logits may be larger than the shift.
float BlockSumOfExp(const LogitBlock& block, float shift) {
  constexpr SumForm kForm{.store = false, .rough = false, .any_sign = true};
  return WithType(block,
                  [&](const auto* x) HWY_ATTR { return SumOfExp<kForm>(x, block.count, shift, nullptr, block.ahead); });
}

template <typename T>
HWY_INLINE float SumOf(const T* x, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(2 * hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = hn::Zero(d);
  for (int64_t i = 0; i < count; i += step) {
    const bool whole = i + step <= count;
    const auto pair = whole ? LoadPair(d, x + i) : LoadPairTail(d, x + i, static_cast<size_t>(count - i));
    s0 = hn::Add(s0, pair.a);
    s1 = hn::Add(s1, pair.b);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
}
float BlockSum(const LogitBlock& block) {
  return WithType(block, [&](const auto* x) HWY_ATTR { return SumOf(x, block.count); });
}

// y = scale * (exp(x - log_sum_exp) - even)
void BlockGradient(const LogitBlock& block, float log_sum_exp, float scale, float even, void* y) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(2 * hn::Lanes(d));
  const auto offset = hn::Set(d, log_sum_exp), factor = hn::Set(d, scale), spread = hn::Set(d, even);
  using Pair = FloatPair<hn::ScalableTag<float>>;
  const auto less = [=](Pair v) HWY_ATTR { return Pair{hn::Sub(v.a, offset), hn::Sub(v.b, offset)}; };
  const auto scaled = [=](Pair e) HWY_ATTR {
    return Pair{hn::Mul(factor, hn::Sub(e.a, spread)), hn::Mul(factor, hn::Sub(e.b, spread))};
  };
  WithType(block, [&]<typename T>(const T* x) HWY_ATTR {
    auto* to = static_cast<T*>(y);
    constexpr bool kRough = HasRoughMath<T>(hn::ScalableTag<float>());
    int64_t i = 0;
    for (; i + 2 * step <= block.count; i += 2 * step) {
      FetchAhead(x + i, static_cast<size_t>(2 * step) * sizeof(T), block.ahead);
      Pair first = less(LoadPair(d, x + i)), second = less(LoadPair(d, x + i + step));
      ExpOfDifferences<kRough, false>(d, first, second);
      StorePair(scaled(first), d, to + i, block.stream);
      StorePair(scaled(second), d, to + i + step, block.stream);
    }
    for (; i < block.count; i += step) {
      const Pair pair = less(LoadPairUpTo(d, x, i, block.count));
      const Pair e = {ExpOfDifference<kRough>(d, pair.a), ExpOfDifference<kRough>(d, pair.b)};
      // Not StorePairUpTo: scale and log_sum_exp may be NaN of any bits.
      const int64_t rest = block.count - i;
      if (rest >= step) {
        StorePair(scaled(e), d, to + i, block.stream);
      } else {
        StorePairTail(scaled(e), d, to + i, static_cast<size_t>(rest));
      }
    }
  });
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
// How far ahead logits of a large matrix are fetched: half a block of f32.
constexpr int64_t kFetchedAhead = 4096;

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

// The rows of the logits as dense blocks.
class LogitRow {
 public:
  LogitRow(const TensorView& logits, int64_t row)
      : dtype_(logits.dtype()),
        stride_(logits.stride(1)),
        bytes_(dtype_size_bytes(dtype_)),
        ahead_(fetched_ahead(logits, kFetchedAhead)),
        data_(logits.data_as<char>() + row * logits.stride(0) * bytes_) {}

  bool is_dense() const { return stride_ == 1; }
  // With `as_f32`, or where its elements are apart, `buffer` takes the block as f32.
  LogitBlock block(int64_t first, int64_t count, float* buffer, bool as_f32 = false) const {
    const char* from = data_ + first * stride_ * bytes_;
    if (is_dense() && !as_f32) return {dtype_, from, count, false, ahead_};
    load_row_as_f32(dtype_, from, stride_, count, buffer);
    return {DType::kFloat32, buffer, count, false, 0};
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
  int64_t ahead_;
  const char* data_;
};

int64_t target_of(const TensorView& targets, int64_t row) {
  const int64_t at = row * targets.stride(0);
  return targets.dtype() == DType::kInt64 ? targets.data_as<int64_t>()[at] : targets.data_as<int32_t>()[at];
}

float nan_or_zero(float value) { return std::isnan(value) ? value : 0.0f; }

// A sum of terms of a block that is larger than this has terms so large that the rounding of their differences shows.
constexpr float kLargestSum = 0x1p24f;

// Of exp(x - shift) over a row.
struct RowSums {
  float shift;
  double terms = 0;
  double beside_target = 0;  // the terms of the blocks that the target does not stand in
  double logits = 0;

  double log_sum_exp() const { return shift + std::log(terms); }
  // The sum relative to the largest of the first logits or, where a block brings terms that are much larger, to its
  // maximum, by which the sums so far are rescaled.
  void add(const LogitBlock& block, bool has_target) {
    float of_block = std::isinf(shift) ? kLargestSum : HWY_DYNAMIC_DISPATCH(BlockSumOfExp)(block, shift);
    if (!(of_block < kLargestSum)) {
      const float largest = std::max(shift, HWY_DYNAMIC_DISPATCH(BlockMax)(block));
      // A block of -inf only adds nothing, unless a NaN hides in it.
      const bool has_numbers = !std::isinf(largest) || largest > 0;
      if (has_numbers && largest > shift) {
        const double factor = std::exp(static_cast<double>(shift) - largest);
        terms *= factor;
        beside_target *= factor;
      }
      of_block = has_numbers ? HWY_DYNAMIC_DISPATCH(BlockSumOfExp)(block, largest)
                             : nan_or_zero(HWY_DYNAMIC_DISPATCH(BlockSum)(block));
      shift = largest;
    }
    terms += of_block;
    if (!has_target) beside_target += of_block;
  }
};

// One pass.
RowSums sum_row(const LogitRow& row, int64_t classes, int64_t target, bool wants_sum) {
  constexpr int64_t kFirst = 256;
  float buffer[kBlock];
  RowSums sums{HWY_DYNAMIC_DISPATCH(BlockMax)(row.block(0, std::min(kFirst, classes), buffer))};
  for (int64_t first = 0; first < classes; first += kBlock) {
    const LogitBlock block = row.block(first, std::min(kBlock, classes - first), buffer);
    sums.add(block, first == target / kBlock * kBlock);
    if (wants_sum) sums.logits += HWY_DYNAMIC_DISPATCH(BlockSum)(block);
  }
  return sums;
}

// Of one row, without smoothing.
double target_loss(const LogitRow& row, int64_t classes, int64_t target, const RowSums& sums) {
  const double above = static_cast<double>(row.at(target)) - sums.shift;
  const double loss = std::log(sums.terms) - above;
  if (!(loss < 0.69)) return loss;
  // The target is the most probable class. Added to its term those of the others would be lost: they are summed alone.
  float buffer[kBlock];
  const int64_t first = target / kBlock * kBlock, last = std::min(first + kBlock, classes);
  double others = sums.beside_target;
  others += HWY_DYNAMIC_DISPATCH(BlockSumOfExp)(row.block(first, target - first, buffer), sums.shift);
  others += HWY_DYNAMIC_DISPATCH(BlockSumOfExp)(row.block(target + 1, last - target - 1, buffer), sums.shift);
  return std::log1p(others / std::exp(above));
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
                   const int64_t target = target_of(targets, r);
                   const RowSums sums = sum_row(row, classes, target, smoothing > 0);
                   const double log_of_sum = sums.log_sum_exp();
                   log_sum_exp.data_as<float>()[r] = static_cast<float>(log_of_sum);
                   if (target == options.ignore_index) continue;
                   double value = target_loss(row, classes, target, sums);
                   if (smoothing > 0) {
                     const double even = log_of_sum - sums.logits / static_cast<double>(classes);
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

void write_gradient(const LogitRow& row, const RowGradient& gradient, const TensorView& output, int64_t index,
                    bool stream) {
  const DType dtype = output.dtype();
  const int64_t bytes = dtype_size_bytes(dtype), stride = output.stride(1);
  char* start = output.data_as<char>() + index * output.stride(0) * bytes;
  float in_buffer[kBlock], out_buffer[kBlock];
  for (int64_t first = 0; first < output.size(1); first += kBlock) {
    const int64_t count = std::min(kBlock, output.size(1) - first);
    char* to = start + first * stride * bytes;
    if (gradient.target < 0) {
      std::fill_n(out_buffer, count, 0.0f);
      store_row_from_f32(out_buffer, count, dtype, to, stride);
      continue;
    }
    const bool direct = stride == 1 && row.is_dense();
    LogitBlock block = row.block(first, count, in_buffer, !direct);
    block.stream = stream && direct;
    const int64_t target = gradient.target - first;
    const bool has_target = target >= 0 && target < count;
    float at_target = 0;
    if (has_target) {  // read before y, which may be the logits, is written
      const float logit = row.at(gradient.target);
      const LogitBlock one{DType::kFloat32, &logit, 1, false, 0};
      HWY_DYNAMIC_DISPATCH(BlockGradient)
      (one, gradient.log_sum_exp, gradient.scale, gradient.even, &at_target);
      at_target -= gradient.at_target;
    }
    HWY_DYNAMIC_DISPATCH(BlockGradient)
    (block, gradient.log_sum_exp, gradient.scale, gradient.even, direct ? static_cast<void*>(to) : out_buffer);
    if (!direct) store_row_from_f32(out_buffer, count, dtype, to, stride);
    if (has_target) store_row_from_f32(&at_target, 1, dtype, to + target * stride * bytes, 1);
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
  const bool stream = writes_past_caches(grad_logits, grad_logits.data() == logits.data());
  const int64_t step = options.reduction == LossReduction::kNone ? grad_loss.stride(0) : 0;
  const int64_t grain = std::max<int64_t>(1, kRowLoopGrain / std::max<int64_t>(classes, 1));
  parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t target = target_of(targets, r);
      const double scale = grad_loss.data_as<float>()[r * step] / divisor;
      const RowGradient gradient{log_sum_exp.data_as<float>()[r], static_cast<float>(scale), even,
                                 static_cast<float>(scale * (1 - smoothing)),
                                 target == options.ignore_index ? -1 : target};
      write_gradient(LogitRow(logits, r), gradient, grad_logits, r, stream);
    }
    if (stream) hwy::FlushStream();
  });
  return ok_status();
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
