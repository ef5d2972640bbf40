#include "quincunx/kernels/norm/norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quincunx/kernels/convert/argument_checks.h"
#include "quincunx/kernels/convert/row_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/norm/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

// The sums of x - shift and of its square. Four independent chains hide the latency of an addition and shorten each
// chain, which bounds the rounding error.
struct Moments {
  float first;
  float second;
};
template <bool kNeedFirst>
HWY_INLINE Moments ShiftedMoments(const float* x, int64_t count, float shift) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector offset = hn::Set(d, shift);
  Vector first[4], second[4];
  for (int k = 0; k < 4; ++k) first[k] = second[k] = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    for (int k = 0; k < 4; ++k) {
      const Vector v = hn::Sub(hn::LoadU(d, x + i + k * lanes), offset);
      if constexpr (kNeedFirst) first[k] = hn::Add(first[k], v);
      second[k] = hn::MulAdd(v, v, second[k]);
    }
  }
  for (; i + lanes <= count; i += lanes) {
    const Vector v = hn::Sub(hn::LoadU(d, x + i), offset);
    first[0] = hn::Add(first[0], v);
    second[0] = hn::MulAdd(v, v, second[0]);
  }
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) {
    const Vector v = hn::IfThenElseZero(hn::FirstN(d, rest), hn::Sub(LoadFloatTail(d, x + i, rest), offset));
    first[1] = hn::Add(first[1], v);
    second[1] = hn::MulAdd(v, v, second[1]);
  }
  const auto total = [d](Vector(&sums)[4]) HWY_ATTR {
    return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
  };
  return {total(first), total(second)};
}

HWY_INLINE float Sum(const float* x, int64_t count) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector sums[4];
  for (Vector& sum : sums) sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    for (int k = 0; k < 4; ++k) sums[k] = hn::Add(sums[k], hn::LoadU(d, x + i + k * lanes));
  }
  for (; i + lanes <= count; i += lanes) sums[0] = hn::Add(sums[0], hn::LoadU(d, x + i));
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) sums[1] = hn::Add(sums[1], LoadFloatTail(d, x + i, rest));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

// y = ((x - mean) - correction) * scale * weight + bias; null weight and bias are left out.
template <bool kWeight, bool kBias>
HWY_INLINE void Normalize(const float* x, int64_t count, float mean, float correction, float scale, const float* weight,
                          const float* bias, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector m = hn::Set(d, mean);
  const Vector c = hn::Set(d, correction);
  const Vector s = hn::Set(d, scale);
  const auto apply = [&](Vector v, Vector w, Vector b) HWY_ATTR {
    v = hn::Mul(hn::Sub(hn::Sub(v, m), c), s);
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

void RmsNormRow(const float* x, int64_t count, float eps, const float* weight, float* y) {
  const float mean_square = ShiftedMoments<false>(x, count, 0).second / static_cast<float>(count);
  const float scale = 1 / std::sqrt(mean_square + eps);
  if (weight != nullptr) {
    Normalize<true, false>(x, count, 0, 0, scale, weight, nullptr, y);
  } else {
    Normalize<false, false>(x, count, 0, 0, scale, nullptr, nullptr, y);
  }
}

void LayerNormRow(const float* x, int64_t count, float eps, const float* weight, const float* bias, float* y) {
  const auto n = static_cast<float>(count);
  // The first mean carries the rounding of a long sum of large numbers; the differences to it are nearly exact, and
  // their own mean is what it missed.
  const float mean = Sum(x, count) / n;
  const Moments moments = ShiftedMoments<true>(x, count, mean);
  const float correction = moments.first / n;
  const float variance = std::max(moments.second / n - correction * correction, 0.0f);
  const float scale = 1 / std::sqrt(variance + eps);
  if (weight != nullptr && bias != nullptr) {
    Normalize<true, true>(x, count, mean, correction, scale, weight, bias, y);
  } else if (weight != nullptr) {
    Normalize<true, false>(x, count, mean, correction, scale, weight, nullptr, y);
  } else if (bias != nullptr) {
    Normalize<false, true>(x, count, mean, correction, scale, nullptr, bias, y);
  } else {
    Normalize<false, false>(x, count, mean, correction, scale, nullptr, nullptr, y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(LayerNormRow);

namespace {

Status check_parameter(std::string_view name, const std::optional<TensorView>& parameter, const TensorView& input) {
  if (!parameter) return ok_status();
  QX_RETURN_IF_ERROR(check_kernel_float(name, *parameter));
  if (parameter->dtype() != DType::kFloat32) {
    QX_RETURN_IF_ERROR(check_same_dtype(name, *parameter, "input", input));
  }
  return check_vector(name, *parameter, input.size(-1), "the last dimension of input");
}

Status check_arguments(const TensorView& input, const NormOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_kernel_float("input", input));
  QX_RETURN_IF_ERROR(check_not_scalar("input", input));
  QX_RETURN_IF_ERROR(check_kernel_float("output", output));
  QX_RETURN_IF_ERROR(check_same_dtype("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_same_shape("output", output, "input", input));
  QX_RETURN_IF_ERROR(check_parameter("weight", options.weight, input));
  QX_RETURN_IF_ERROR(check_parameter("bias", options.bias, input));
  if (!(options.eps >= 0) || std::isinf(options.eps)) {
    return invalid_argument("eps: expected a finite number that is not negative, got " + std::to_string(options.eps));
  }
  QX_RETURN_IF_ERROR(check_output("output", output, {{"input", &input}}));
  // Rows are normalised one after another: a parameter must not change under way.
  for (const auto& [name, parameter] : {std::pair{"weight", &options.weight}, std::pair{"bias", &options.bias}}) {
    if (parameter->has_value()) QX_RETURN_IF_ERROR(check_output("output", output, {{name, &parameter->value()}}));
  }
  return ok_status();
}

// The parameter as contiguous f32: its own memory where it is that already, else a copy in `storage`.
const float* parameter_as_f32(const std::optional<TensorView>& parameter, std::vector<float>& storage) {
  if (!parameter || parameter->num_elements() == 0) return nullptr;
  if (parameter->dtype() == DType::kFloat32 && parameter->is_contiguous()) return parameter->data_as<float>();
  storage.resize(static_cast<size_t>(parameter->size(0)));
  load_row_as_f32(parameter->dtype(), parameter->data(), parameter->stride(0), parameter->size(0), storage.data());
  return storage.data();
}

}  // namespace

Status rms_norm(const TensorView& input, const NormOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_arguments(input, options, output));
  if (options.bias) return invalid_argument("bias: rms_norm takes none, got " + options.bias->to_string());
  std::vector<float> weight_storage;
  const float* weight = parameter_as_f32(options.weight, weight_storage);
  const auto eps = static_cast<float>(options.eps);
  for_each_row_as_f32(input, output, [&](const float* x, float* y) {
    HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, input.size(-1), eps, weight, y);
  });
  return ok_status();
}

Status layer_norm(const TensorView& input, const NormOptions& options, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_arguments(input, options, output));
  std::vector<float> weight_storage, bias_storage;
  const float* weight = parameter_as_f32(options.weight, weight_storage);
  const float* bias = parameter_as_f32(options.bias, bias_storage);
  const auto eps = static_cast<float>(options.eps);
  for_each_row_as_f32(input, output, [&](const float* x, float* y) {
    HWY_DYNAMIC_DISPATCH(LayerNormRow)(x, input.size(-1), eps, weight, bias, y);
  });
  return ok_status();
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
