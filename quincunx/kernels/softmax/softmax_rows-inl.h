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

#include "quincunx/kernels/convert/float_pair-inl.h"
#include "quincunx/kernels/elementwise/rough_math-inl.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The pair that begins at x + i, of a row's `count` elements; those beyond the end are -inf, which neither a maximum
// nor a sum of exponentials notices.
template <class D, typename T>
HWY_INLINE FloatPair<D> LoadPairUpTo(D d, const T* x, int64_t i, int64_t count) {
  const auto rest = static_cast<size_t>(count - i);
  if (HWY_LIKELY(rest >= 2 * hn::Lanes(d))) return LoadPair(d, x + i);
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  return KeepFirst<T>(d, LoadPairTail(d, x + i, rest), rest, lowest);
}
// Of what was computed from elements of T.
template <class D, typename T>
HWY_INLINE void StorePairUpTo(FloatPair<D> pair, D d, T* y, int64_t i, int64_t count, bool stream) {
  const auto rest = static_cast<size_t>(count - i);
  if (HWY_LIKELY(rest >= 2 * hn::Lanes(d))) return StorePair<NaNBits::kOfBFloat16>(pair, d, y + i, stream);
  StorePairTail(pair, d, y + i, rest);
}

// -inf for an empty row. NaN may be dropped: exp and the sum carry it to the whole row.
template <typename T>
HWY_INLINE float LargestOf(const T* x, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(2 * hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
  int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    const auto first = LoadPair(d, x + i), second = LoadPair(d, x + i + step);
    m0 = hn::Max(first.a, m0);
    m1 = hn::Max(first.b, m1);
    m2 = hn::Max(second.a, m2);
    m3 = hn::Max(second.b, m3);
  }
  for (; i < count; i += step) {
    const auto pair = LoadPairUpTo(d, x, i, count);
    m0 = hn::Max(pair.a, m0);
    m1 = hn::Max(pair.b, m1);
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

// The short way of ExpOfDifference, right where the result is a normal number. With kRough within 2^-15.
template <bool kRough, class D, class V>
HWY_INLINE V NormalExpOfDifference(D d, V x) {
  if constexpr (kRough) return RoughExp<false>(d, x);
  const V shift = hn::Set(d, 0x1.8p23f);
  if constexpr (HasExpTable(D())) {
    const V sixteenths = hn::Set(d, 16 * 1.44269504f);
    const V shifted = hn::MulAdd(x, sixteenths, shift);
    const V r = hn::MulSub(x, sixteenths, hn::Sub(shifted, shift));
    static constexpr float kExp2[] = {4.33216988e-02f, 9.38415189e-04f, 1.35512574e-05f};
    const V root = SixteenthPowerOfTwo(d, shifted);
    return hn::MulAdd(root, hn::Mul(r, Polynomial(d, r, kExp2)), root);
  }
  const hn::RebindToSigned<D> di;
  const V log2_e = hn::Set(d, 1.44269504f);
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
template <bool kRough, class D, class V>
HWY_INLINE V ExpOfDifference(D d, V x) {
  const V y = NormalExpOfDifference<kRough>(d, x);
  const auto normal = hn::Gt(x, hn::Set(d, -87.0f));
  if (hn::AllTrue(d, normal)) return y;
  return hn::IfThenElse(normal, y, RareExp(d, x));
}

// ExpOfDifference of four vectors, with one question for all of them. It is asked of their bits, where what lies
// further below zero is larger: a minimum of numbers would drop those that meet a NaN in the same lane of another
// vector. With kAnySign differences may also be larger than 88 and give infinity.
template <bool kRough, bool kAnySign, class D>
HWY_INLINE void ExpOfDifferences(D d, FloatPair<D>& first, FloatPair<D>& second) {
  const hn::RebindToUnsigned<D> bits;
  const auto of = [bits](hn::Vec<D> v) HWY_ATTR { return hn::BitCast(bits, kAnySign ? hn::Abs(v) : v); };
  const auto least = hn::Max(hn::Max(of(first.a), of(first.b)), hn::Max(of(second.a), of(second.b)));
  const auto limit = hn::Set(d, kAnySign ? 87.0f : -87.0f);
  if (HWY_LIKELY(hn::AllTrue(bits, hn::Lt(least, hn::BitCast(bits, limit))))) {
    first = {NormalExpOfDifference<kRough>(d, first.a), NormalExpOfDifference<kRough>(d, first.b)};
    second = {NormalExpOfDifference<kRough>(d, second.a), NormalExpOfDifference<kRough>(d, second.b)};
    return;
  }
  const auto one = [d](hn::Vec<D> x) HWY_ATTR {
    if constexpr (!kAnySign) return ExpOfDifference<kRough>(d, x);
    const auto normal = HasNormalExp(d, x);
    return hn::IfThenElse(normal, NormalExpOfDifference<kRough>(d, x), RareExp(d, x));
  };
  first = {one(first.a), one(first.b)};
  second = {one(second.a), one(second.b)};
}

// How SumOfExp computes. `kStore`: the terms are written to `terms` in the order of pairs of T: of bf16 up to a whole
// pair. They may be x. `kRough`: of bf16 within 2^-15 each, for quotients that are rounded to it. `kAnySign`: x may be
// larger than the shift.
struct SumForm {
  bool store = false;
  bool rough = false;
  bool any_sign = false;
};

// The sum of exp(x[i] - shift), where the lines `ahead` bytes behind x are fetched.
template <SumForm kForm, typename T>
HWY_INLINE float SumOfExp(const T* x, int64_t count, float shift, float* terms, int64_t ahead) {
  const hn::ScalableTag<float> d;
  using Pair = FloatPair<hn::ScalableTag<float>>;
  constexpr bool kRough = kForm.rough && HasRoughMath<T>(hn::ScalableTag<float>());
  const auto step = static_cast<int64_t>(2 * hn::Lanes(d));
  const auto offset = hn::Set(d, shift);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto less = [offset](Pair pair) HWY_ATTR { return Pair{hn::Sub(pair.a, offset), hn::Sub(pair.b, offset)}; };
  int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    FetchAhead(x + i, static_cast<size_t>(2 * step) * sizeof(T), ahead);
    Pair first = less(LoadPair(d, x + i)), second = less(LoadPair(d, x + i + step));
    ExpOfDifferences<kRough, kForm.any_sign>(d, first, second);
    s0 = hn::Add(s0, first.a);
    s1 = hn::Add(s1, first.b);
    s2 = hn::Add(s2, second.a);
    s3 = hn::Add(s3, second.b);
    if constexpr (kForm.store) StorePair(first, d, terms + i), StorePair(second, d, terms + i + step);
  }
  for (; i < count; i += step) {
    Pair pair = less(LoadPairUpTo(d, x, i, count)), none = {hn::Zero(d), hn::Zero(d)};
    ExpOfDifferences<kRough, kForm.any_sign>(d, pair, none);
    s0 = hn::Add(s0, pair.a);
    s1 = hn::Add(s1, pair.b);
    if constexpr (kForm.store) {
      // Terms of f32 may stand in the result's row, which ends with it.
      const bool whole = kPairsAreInterleaved<T> || count - i >= step;
      whole ? StorePair(pair, d, terms + i) : StorePairTail(pair, d, terms + i, static_cast<size_t>(count - i));
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
