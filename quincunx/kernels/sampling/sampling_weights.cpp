#include "quincunx/kernels/sampling/sampling_weights.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/sampling/sampling_weights.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLanes = 16;

void Largest(const float* x, int64_t count, LargestLogit* result) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto numbers = hn::Eq(largest, largest);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    numbers = hn::And(numbers, hn::Eq(v, v));
    largest = hn::Max(v, largest);
  }
  // Not MaxOfLanes: of infinities below zero the portable one of Highway 1.0.3 makes the lowest finite number.
  HWY_ALIGN float of_lanes[hn::MaxLanes(d)];
  hn::Store(largest, d, of_lanes);
  result->value = of_lanes[0];
  for (int64_t k = 1; k < lanes; ++k) {
    if (of_lanes[k] > result->value) result->value = of_lanes[k];
  }
  result->has_nan = !hn::AllTrue(d, numbers);
  for (; i < count; ++i) {
    result->has_nan |= x[i] != x[i];
    if (x[i] > result->value) result->value = x[i];
  }
}

// exp(x) for x <= 0 with separate products and sums only, so that every target rounds alike.
template <class D, class V>
HWY_INLINE V ReproducibleExp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V lowest = hn::Set(d, -87.0f);
  const V capped = hn::Max(x, lowest);
  const auto n = hn::NearestInt(hn::Mul(capped, hn::Set(d, 1.44269504f)));
  const V nf = hn::ConvertTo(d, n);
  const V coarse = hn::Sub(capped, hn::Mul(nf, hn::Set(d, 0.693359375f)));
  const V r = hn::Add(coarse, hn::Mul(nf, hn::Set(d, 2.12194440e-4f)));
  static constexpr float kExp[] = {
      1.0f, 1.0f, 4.999999404e-01f, 1.666652113e-01f, 4.166838899e-02f, 8.368715644e-03f, 1.381460228e-03f};
  V y = hn::Set(d, kExp[6]);
  for (int i = 5; i >= 0; --i) y = hn::Add(hn::Mul(y, r), hn::Set(d, kExp[i]));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::Mul(y, power));
}

float WeightBlock(const float* x, int64_t count, float largest, float inverse_temperature, float* weights) {
  const hn::CappedTag<float, kLanes> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto offset = hn::Set(d, largest);
  const auto factor = hn::Set(d, inverse_temperature);
  HWY_ALIGN float sums[kLanes] = {};
  const auto weigh = [&](const float* from, float* to) HWY_ATTR {
    for (int64_t k = 0; k < kLanes; k += lanes) {
      const auto w = ReproducibleExp(d, hn::Mul(hn::Sub(hn::LoadU(d, from + k), offset), factor));
      hn::StoreU(w, d, to + k);
      hn::Store(hn::Add(hn::Load(d, sums + k), w), d, sums + k);
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) weigh(x + i, weights + i);
  if (i < count) {
    float rest[kLanes], weighed[kLanes];
    std::fill_n(rest, kLanes, -std::numeric_limits<float>::infinity());
    std::copy(x + i, x + count, rest);
    weigh(rest, weighed);
    std::copy_n(weighed, count - i, weights + i);
  }
  float sum = 0;
  for (const float each : sums) sum += each;
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(Largest);
HWY_EXPORT(WeightBlock);

LargestLogit largest_logit(std::span<const float> logits) {
  LargestLogit result{};
  HWY_DYNAMIC_DISPATCH(Largest)(logits.data(), static_cast<int64_t>(logits.size()), &result);
  return result;
}

void fill_weights(std::span<const float> logits, float largest, float inverse_temperature, std::span<float> weights,
                  std::span<float> sums) {
  const auto count = static_cast<int64_t>(logits.size());
  for (int64_t first = 0; first < count; first += kWeightBlock) {
    sums[static_cast<size_t>(first / kWeightBlock)] =
        HWY_DYNAMIC_DISPATCH(WeightBlock)(logits.data() + first, std::min(kWeightBlock, count - first), largest,
                                          inverse_temperature, weights.data() + first);
  }
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
