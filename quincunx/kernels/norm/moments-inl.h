// Sums of rows for the norms, in an order that depends on the length and the instruction set only: include from a file
// that foreach_target.h compiles.
#if defined(QUINCUNX_KERNELS_NORM_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_NORM_MOMENTS_INL_H_
#undef QUINCUNX_KERNELS_NORM_MOMENTS_INL_H_
#else
#define QUINCUNX_KERNELS_NORM_MOMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "quincunx/kernels/convert/float_pair-inl.h"

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
class MomentSums {
 public:
  using D = hn::ScalableTag<float>;

  explicit MomentSums(float shift) : offset_(hn::Set(D(), shift)) {
    for (int k = 0; k < 4; ++k) first_[k] = second_[k] = hn::Zero(D());
  }
  // `chains` is 0 or 2, alternating.
  HWY_INLINE void add(FloatPair<D> pair, int chains) {
    if constexpr (kNeedFirst) {
      // The same difference by another unit: additions are what the loop waits for.
      pair = {hn::Sub(pair.a, offset_), hn::MulSub(pair.b, hn::Set(D(), 1.0f), offset_)};
      first_[chains] = hn::Add(first_[chains], pair.a);
      first_[chains + 1] = hn::Add(first_[chains + 1], pair.b);
    }
    second_[chains] = hn::MulAdd(pair.a, pair.a, second_[chains]);
    second_[chains + 1] = hn::MulAdd(pair.b, pair.b, second_[chains + 1]);
  }
  // The first `count` elements of a pair of T.
  template <typename T>
  HWY_INLINE void add_first(FloatPair<D> pair, size_t count) {
    add(KeepFirst<T>(D(), pair, count, kNeedFirst ? offset_ : hn::Zero(D())), 0);
  }
  HWY_INLINE Moments total() const { return {total_of(first_), total_of(second_)}; }

 private:
  static HWY_INLINE float total_of(const hn::Vec<D> (&sums)[4]) {
    return hn::GetLane(hn::SumOfLanes(D(), hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
  }

  hn::Vec<D> offset_, first_[4], second_[4];
};

// Of a row whose pairs `load(i)` gives and `load_tail(i, count)` at its end.
template <bool kNeedFirst, typename T, class Load, class LoadTail>
HWY_INLINE Moments MomentsOfPairs(int64_t count, float shift, const Load& load, const LoadTail& load_tail) {
  const auto step = static_cast<int64_t>(2 * hn::Lanes(hn::ScalableTag<float>()));
  MomentSums<kNeedFirst> sums(shift);
  int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    sums.add(load(i), 0);
    sums.add(load(i + step), 2);
  }
  for (; i + step <= count; i += step) sums.add(load(i), 0);
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) sums.template add_first<T>(load_tail(i, rest), rest);
  return sums.total();
}

template <bool kNeedFirst, typename T>
HWY_INLINE Moments ShiftedMoments(const T* x, int64_t count, float shift) {
  const hn::ScalableTag<float> d;
  return MomentsOfPairs<kNeedFirst, T>(
      count, shift, [d, x](int64_t i) HWY_ATTR { return LoadPair(d, x + i); },
      [d, x](int64_t i, size_t rest) HWY_ATTR { return LoadPairTail(d, x + i, rest); });
}

// The mean as mean + correction, and the sum of squared differences to it.
struct RowMoments {
  float mean;
  float correction;
  float squares;
};

// `moments` are about `shift`, which for most rows lies within a few deviations of the mean; where it does not, another
// pass about the mean that was found. The subtraction of n d^2 then costs at most two bits.
template <typename T>
HWY_INLINE RowMoments CentredMoments(const T* x, int64_t count, float shift, Moments moments) {
  const auto n = static_cast<double>(count);
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

// First about the row's first element.
template <typename T>
HWY_INLINE RowMoments MomentsOf(const T* x, int64_t count) {
  const float shift = static_cast<float>(x[0]);
  return CentredMoments(x, count, shift, ShiftedMoments<true>(x, count, shift));
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
