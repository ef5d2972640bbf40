// Sums of rows for the norms, in an order that depends on the length and the instruction set only: include from a file
// that foreach_target.h compiles.
#if defined(QUINCUNX_KERNELS_NORM_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_NORM_MOMENTS_INL_H_
#undef QUINCUNX_KERNELS_NORM_MOMENTS_INL_H_
#else
#define QUINCUNX_KERNELS_NORM_MOMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quincunx/kernels/convert/float_storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sums of x - shift and of its square. Four independent chains hide the latency of an addition and shorten each
// chain, which bounds the rounding error.
struct Moments {
  float first;
  float second;
};
template <bool kNeedFirst>
HWY_INLINE Moments ShiftedMoments(const float* x, int64_t count, float shift) {
  const hn::ScalableTag<float> d;
  using Vector = hn::Vec<decltype(d)>;
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
  const hn::ScalableTag<float> d;
  using Vector = hn::Vec<decltype(d)>;
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

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
