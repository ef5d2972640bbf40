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

// The mean as mean + correction, and the sum of squared differences to it.
struct RowMoments {
  float mean;
  float correction;
  float squares;
};

// One pass about the first element, which for most rows lies within a few deviations of the mean; where it does not,
// another one about the mean that was found. The subtraction of n d^2 then costs at most two bits.
HWY_INLINE RowMoments MomentsOf(const float* x, int64_t count) {
  const auto n = static_cast<double>(count);
  float shift = x[0];
  Moments moments = ShiftedMoments<true>(x, count, shift);
  double distance = moments.first / n;
  double squares = moments.second - n * distance * distance;
  if (n * distance * distance > 3 * squares) {
    shift = static_cast<float>(shift + distance);
    moments = ShiftedMoments<true>(x, count, shift);
    distance = moments.first / n;
    squares = moments.second - n * distance * distance;
  }
  const double mean = shift + distance;
  const auto rounded = static_cast<float>(mean);
  return {rounded, static_cast<float>(mean - rounded),
          squares > 0 ? static_cast<float>(squares) : 0.0f * moments.second};
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
