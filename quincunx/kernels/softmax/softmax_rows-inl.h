// Parts of softmax that other kernels share: the largest element of a row, and exponentials of differences to it.
// Include from a file that foreach_target.h compiles.
#if defined(QUINCUNX_KERNELS_SOFTMAX_SOFTMAX_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_SOFTMAX_SOFTMAX_ROWS_INL_H_
#undef QUINCUNX_KERNELS_SOFTMAX_SOFTMAX_ROWS_INL_H_
#else
#define QUINCUNX_KERNELS_SOFTMAX_SOFTMAX_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

#include "quincunx/kernels/convert/float_storage-inl.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// -inf for an empty row. NaN may be dropped: exp and the sum carry it to the whole row.
HWY_INLINE float LargestOf(const float* x, int64_t count) {
  const hn::ScalableTag<float> d;
  using Vector = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  Vector m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    m0 = hn::Max(hn::LoadU(d, x + i), m0);
    m1 = hn::Max(hn::LoadU(d, x + i + lanes), m1);
    m2 = hn::Max(hn::LoadU(d, x + i + 2 * lanes), m2);
    m3 = hn::Max(hn::LoadU(d, x + i + 3 * lanes), m3);
  }
  for (; i + lanes <= count; i += lanes) m0 = hn::Max(hn::LoadU(d, x + i), m0);
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) m1 = hn::Max(hn::IfThenElse(hn::FirstN(d, rest), LoadFloatTail(d, x + i, rest), lowest), m1);
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

// The short way of ExpOfDifference, right where the result is a normal number.
template <class D, class V>
HWY_INLINE V NormalExpOfDifference(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V log2_e = hn::Set(d, 1.44269504f);
  const V shift = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::MulAdd(x, log2_e, shift);
  const V r = hn::MulSub(x, log2_e, hn::Sub(shifted, shift));
  static constexpr float kExp2[] = {
      1.0f, 6.931471825e-01f, 2.402264774e-01f, 5.550332367e-02f, 9.618436918e-03f, 1.339887502e-03f, 1.535336196e-04f};
  // The low bits of `shifted` are the exponent; those above leave the word.
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, Polynomial(d, r, kExp2)), exponent));
}

// exp(x) for x up to 88, by way of base 2, for differences that were rounded anyway: besides an ulp the relative error
// is 2^-26 |x|, without fused multiply-add 1.25 * 2^-24 |x|. A lane's bits do not depend on the other lanes.
template <class D, class V>
HWY_INLINE V ExpOfDifference(D d, V x) {
  const V y = NormalExpOfDifference(d, x);
  const auto normal = hn::Gt(x, hn::Set(d, -87.0f));
  if (hn::AllTrue(d, normal)) return y;
  return hn::IfThenElse(normal, y, Exp(d, x));
}

// The sum of exp(x[i] - shift); with kStore the terms are written to y, which may be x.
template <bool kStore>
HWY_INLINE float SumOfExp(const float* x, int64_t count, float shift, float* y) {
  const hn::ScalableTag<float> d;
  using Vector = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector offset = hn::Set(d, shift);
  Vector s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  const auto term = [&](int64_t at) HWY_ATTR { return hn::Sub(hn::LoadU(d, x + at), offset); };
  const auto take = [&](Vector e, int64_t at, Vector& sum) HWY_ATTR {
    if constexpr (kStore) hn::StoreU(e, d, y + at);
    sum = hn::Add(sum, e);
  };
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const Vector x0 = term(i), x1 = term(i + lanes), x2 = term(i + 2 * lanes), x3 = term(i + 3 * lanes);
    // One question for four vectors; a NaN that the minimum drops is right either way.
    const Vector least = hn::Min(hn::Min(x0, x1), hn::Min(x2, x3));
    if (HWY_LIKELY(hn::AllTrue(d, hn::Gt(least, hn::Set(d, -87.0f))))) {
      take(NormalExpOfDifference(d, x0), i, s0);
      take(NormalExpOfDifference(d, x1), i + lanes, s1);
      take(NormalExpOfDifference(d, x2), i + 2 * lanes, s2);
      take(NormalExpOfDifference(d, x3), i + 3 * lanes, s3);
      continue;
    }
    take(ExpOfDifference(d, x0), i, s0);
    take(ExpOfDifference(d, x1), i + lanes, s1);
    take(ExpOfDifference(d, x2), i + 2 * lanes, s2);
    take(ExpOfDifference(d, x3), i + 3 * lanes, s3);
  }
  for (; i + lanes <= count; i += lanes) take(ExpOfDifference(d, term(i)), i, s0);
  const auto rest = static_cast<size_t>(count - i);
  if (rest != 0) {
    const Vector e = ExpOfDifference(d, hn::Sub(LoadFloatTail(d, x + i, rest), offset));
    if constexpr (kStore) StoreFloatTail(e, d, y + i, rest);
    s1 = hn::Add(s1, hn::IfThenElseZero(hn::FirstN(d, rest), e));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
