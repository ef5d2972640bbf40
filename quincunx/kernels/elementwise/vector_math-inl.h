// Transcendental functions on vectors of f32, inlined per target: include from a file that foreach_target.h compiles.
// Errors in units in the last place of the correctly rounded result, over all 2^32 inputs, with or without fused
// multiply-add (tests/kernels/elementwise/vector_math_test.cpp measures them):
//   Exp 1, Log 1, Erf 1.5, Tanh 2, Sigmoid 2, Silu 3 (and 2^-142 absolute, where results are tiny)
//   GeluErf, GeluTanh: |error| <= 2^-22 * |x|; relative accuracy is lost where 1 + erf or 1 + tanh cancels (x < -1)
// NaN gives NaN, infinities give the limits, denormal arguments and results are kept.
#if defined(QUINCUNX_KERNELS_ELEMENTWISE_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_ELEMENTWISE_VECTOR_MATH_INL_H_
#undef QUINCUNX_KERNELS_ELEMENTWISE_VECTOR_MATH_INL_H_
#else
#define QUINCUNX_KERNELS_ELEMENTWISE_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

#include "quincunx/kernels/elementwise/exp_table-inl.h"
#include "quincunx/kernels/elementwise/gelu-inl.h"
#include "quincunx/kernels/elementwise/polynomial-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 2^n for -126 <= n <= 127.
template <class D, class VI>
HWY_INLINE hn::Vec<D> PowerOfTwo(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// exp(x) = 2^n * reduced, with |x - n ln 2| <= ln(2) / 2. x must be within [-104, 89] or NaN. The result is within 0.55
// units of the exact one with kCompensated, 1.02 without.
template <bool kCompensated, class D, class V, class VI>
HWY_INLINE V ReducedExp(D d, V x, VI& n) {
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
  const V shift = hn::Set(d, 0x1.8p23f);
  const hn::RebindToSigned<D> di;
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  n = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, 0x4b400000));
  const V nf = hn::Sub(shifted, shift);
  // The first part of ln 2 has nine bits: its product with n is exact without fused multiply-add too.
  const V coarse = hn::NegMulAdd(nf, hn::Set(d, 0.693359375f), x);
  const V r = hn::NegMulAdd(nf, hn::Set(d, -2.12194440e-4f), coarse);
  static constexpr float kExp[] = {4.999999404e-01f, 1.666652113e-01f, 4.166838899e-02f, 8.368715644e-03f,
                                   1.381460228e-03f};
  const V curved = Polynomial(d, r, kExp);
  const V one = hn::Set(d, 1.0f);
  if constexpr (!kCompensated) return hn::Add(one, hn::MulAdd(hn::Mul(r, r), curved, r));
  // What rounding took from r, and from 1 + r, joins the small terms: only the last addition rounds noticeably.
  const V lost = hn::NegMulAdd(nf, hn::Set(d, -2.12194440e-4f), hn::Sub(coarse, r));
  const V head = hn::Add(one, r);
  const V rest = hn::Add(hn::Sub(r, hn::Sub(head, one)), lost);
  return hn::Add(head, hn::MulAdd(hn::Mul(r, r), curved, rest));
}

// y * 2^n where the result is a normal number.
template <class D, class V, class VI>
HWY_INLINE V TimesPowerOfTwo(D d, V y, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::Add(hn::BitCast(di, y), hn::ShiftLeft<23>(n)));
}

// Whether exp(x) and exp(-x) are normal numbers.
template <class D, class V>
HWY_INLINE hn::Mask<D> HasNormalExp(D d, V x) {
  return hn::Lt(hn::Abs(x), hn::Set(d, 87.0f));
}

// exp(x), or exp(-x) with kNegated, where HasNormalExp(x), anything elsewhere: within 1.1 ulp, with AVX-512 0.6 where
// kCorrected brings back what rounding took from the table.
template <bool kNegated, bool kCorrected, class D, class V>
HWY_INLINE V ShortExp(D d, V x) {
  if constexpr (HasExpTable(D())) {
    // With kNegated r is the negative of what is left of the exponent, which the signs of the odd terms take back.
    constexpr float kSign = kNegated ? -1 : 1;
    const V shift = hn::Set(d, 0x1.8p23f);
    const V shifted = hn::MulAdd(x, hn::Set(d, kSign * 16 * 1.44269504f), shift);
    const V n = hn::Sub(shifted, shift);
    const V coarse = hn::NegMulAdd(n, hn::Set(d, kSign * 0.693359375f / 16), x);
    const V r = hn::NegMulAdd(n, hn::Set(d, kSign * -2.12194440e-4f / 16), coarse);
    static constexpr float kExp[] = {kSign * 1.0f, 0.5000162f, kSign * 0.1666722f};
    const V root = SixteenthPowerOfTwo(d, shifted);
    const V slope = Polynomial(d, r, kExp);
    if constexpr (!kCorrected) return hn::MulAdd(root, hn::Mul(r, slope), root);
    return hn::MulAdd(root, hn::MulAdd(r, slope, LostFromSixteenthPower(d, shifted)), root);
  }
  hn::Vec<hn::RebindToSigned<D>> n;
  const V y = ReducedExp<false>(d, kNegated ? hn::Neg(x) : x, n);
  return TimesPowerOfTwo(d, y, n);
}

// Within 0.6 ulp.
template <class D, class V>
HWY_INLINE V Exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  hn::Vec<decltype(di)> n;
  if (hn::AllTrue(d, HasNormalExp(d, x))) {
    const V y = ReducedExp<true>(d, x, n);
    return TimesPowerOfTwo(d, y, n);
  }
  // exp(-104) rounds to 0 and exp(89) to infinity.
  const V clamped = hn::Max(hn::Min(x, hn::Set(d, 89.0f)), hn::Set(d, -104.0f));
  const V reduced = ReducedExp<true>(d, clamped, n);
  // Two factors: 2^n itself is not a normal number at either end.
  const auto half = hn::ShiftRight<1>(n);
  const V y = hn::Mul(hn::Mul(reduced, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(n, half)));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

// Exp of lanes of which few are likely to need it: out of line, so that the callers stay small.
template <class D>
HWY_NOINLINE void ExpInMemory(D d, float* lanes) {
  hn::Store(Exp(d, hn::Load(d, lanes)), d, lanes);
}
template <class D, class V>
HWY_INLINE V RareExp(D d, V x) {
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  hn::Store(x, d, lanes);
  ExpInMemory(d, lanes);
  return hn::Load(d, lanes);
}

// Within 1.1 ulp, and cheaper. A lane's bits do not depend on the other lanes.
template <class D, class V>
HWY_INLINE V FastExp(D d, V x) {
  const auto normal = HasNormalExp(d, x);
  const V y = ShortExp<false, false>(d, x);
  if (hn::AllTrue(d, normal)) return y;
  return hn::IfThenElse(normal, y, RareExp(d, x));
}

// exp(x) for x <= 0, zero below x = -87 (1.4 * 2^-126): cheaper than Exp. NaN gives NaN, -inf gives 0.
template <class D, class V>
HWY_INLINE V ExpOfNonPositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  hn::Vec<decltype(di)> n;
  const V lowest = hn::Set(d, -87.0f);
  const V y = ReducedExp<false>(d, hn::Max(x, lowest), n);
  const V scaled = hn::IfThenZeroElse(hn::Lt(x, lowest), hn::Mul(y, PowerOfTwo(d, n)));
  return hn::IfThenElse(hn::Eq(x, x), scaled, x);
}

// 2^x for x <= 0, zero below x = -126: for softmax on scores that were multiplied by log2(e). Within 1.25 ulp; NaN
// gives NaN.
template <class D, class V>
HWY_INLINE V Exp2OfNonPositive(D d, V x) {
  const V lowest = hn::Set(d, -126.0f);
  const V capped = hn::Max(x, lowest);
  const auto n = hn::NearestInt(capped);
  const V r = hn::Sub(capped, hn::ConvertTo(d, n));  // exact
  static constexpr float kExp2[] = {6.931471825e-01f, 2.402264774e-01f, 5.550332367e-02f,
                                    9.618436918e-03f, 1.339887502e-03f, 1.535336196e-04f};
  const V y = hn::MulAdd(r, Polynomial(d, r, kExp2), hn::Set(d, 1.0f));
  const V scaled = hn::IfThenZeroElse(hn::Lt(x, lowest), hn::Mul(y, PowerOfTwo(d, n)));
  return hn::IfThenElse(hn::Eq(x, x), scaled, x);
}

// Natural logarithm; log(0) = -inf, log(x < 0) = NaN.
template <class D, class V>
HWY_INLINE V Log(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto denormal = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
  const V normal = hn::IfThenElse(denormal, hn::Mul(x, hn::Set(d, 0x1p23f)), x);
  const auto bits = hn::BitCast(di, normal);
  // Exponent and mantissa, the mantissa within [sqrt(1/2), sqrt(2)).
  const auto offset = hn::Sub(bits, hn::Set(di, 0x3f3504f3));
  const auto exponent = hn::ShiftRight<23>(offset);
  const auto mantissa = hn::Add(hn::And(offset, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f3504f3));
  const V e = hn::Sub(hn::ConvertTo(d, exponent), hn::IfThenElseZero(denormal, hn::Set(d, 23.0f)));
  const V f = hn::Sub(hn::BitCast(d, mantissa), hn::Set(d, 1.0f));

  static constexpr float kLog[] = {3.333331347e-01f,  -2.500000894e-01f, 2.000211924e-01f,
                                   -1.666799635e-01f, 1.421955228e-01f,  -1.240558922e-01f,
                                   1.188816279e-01f,  -1.167565137e-01f, 6.746638566e-02f};
  const V f2 = hn::Mul(f, f);
  V y = hn::Mul(hn::Mul(f2, f), Polynomial(d, f, kLog));
  y = hn::MulAdd(e, hn::Set(d, -2.12194440e-4f), y);
  y = hn::NegMulAdd(hn::Set(d, 0.5f), f2, y);
  y = hn::MulAdd(e, hn::Set(d, 0.693359375f), hn::Add(f, y));

  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  y = hn::IfThenElse(hn::Lt(x, infinity), y, x);  // +inf and NaN
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), y);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
}

template <class D, class V>
HWY_INLINE V Erf(D d, V x) {
  const V t = hn::Abs(x);
  static constexpr float kSmall[] = {1.283791661e-01f, -3.761263192e-01f, 1.128368750e-01f, -2.685894258e-02f,
                                     5.199907813e-03f, -8.130021743e-04f, 8.316806634e-05f};
  const V small = hn::MulAdd(x, Polynomial(d, hn::Mul(x, x), kSmall), x);
  // log(erfc(t)) for 0.92 <= t <= 3.95; erf rounds to 1 beyond.
  static constexpr float kLarge[] = {-1.956749620e-04f, -1.127675653e+00f, -6.371822357e-01f, -1.039315984e-01f,
                                     2.222692221e-02f,  -3.043218050e-03f, 1.959373039e-04f};
  const V capped = hn::Min(t, hn::Set(d, 3.95f));
  const V large = hn::Sub(hn::Set(d, 1.0f), ExpOfNonPositive(d, Polynomial(d, capped, kLarge)));
  const V y = hn::IfThenElse(hn::Gt(t, hn::Set(d, 0.925f)), hn::CopySignToAbs(large, x), small);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

template <class D, class V>
HWY_INLINE V Tanh(D d, V x) {
  const V t = hn::Abs(x);
  static constexpr float kSmall[] = {-3.333333135e-01f, 1.333319694e-01f,  -5.394551903e-02f,
                                     2.169368044e-02f,  -8.159555495e-03f, 2.126227133e-03f};
  const V x2 = hn::Mul(x, x);
  const V small = hn::MulAdd(hn::Mul(t, x2), Polynomial(d, x2, kSmall), t);
  const V one = hn::Set(d, 1.0f);
  const V two = hn::Set(d, 2.0f);
  // (1 - e) / (1 + e) written as 1 - 2e / (1 + e): the error of e = exp(-2t) is damped.
  const V e = ExpOfNonPositive(d, hn::Mul(hn::Neg(two), t));
  const V large = hn::Sub(one, hn::Div(hn::Mul(two, e), hn::Add(one, e)));
  return hn::CopySignToAbs(hn::IfThenElse(hn::Gt(t, hn::Set(d, 0.625f)), large, small), x);
}

// 1 / (1 + exp(-x)), without overflow: exp is taken of -|x| only. Within 2 ulp with kCompensated, 2.5 without.
template <bool kCompensated, class D, class V>
HWY_INLINE V SigmoidOf(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = Exp(d, hn::Neg(hn::Abs(x)));
  const V sum = hn::Add(one, e);
  const auto is_negative = hn::Lt(x, hn::Zero(d));
  const V y = hn::Div(hn::IfThenElse(is_negative, e, one), sum);
  if constexpr (!kCompensated) return y;
  // What rounding took from 1 + e, times the derivative of the quotient: 1 / (1 + e) is y or 1 - y.
  const V lost = hn::Sub(e, hn::Sub(sum, one));
  const V inverse = hn::IfThenElse(is_negative, hn::Sub(one, y), y);
  return hn::NegMulAdd(hn::Mul(y, lost), inverse, y);
}

template <class D, class V>
HWY_INLINE V Sigmoid(D d, V x) {
  return SigmoidOf<true>(d, x);
}

// dividend / divisor within 0.6 ulp for divisors between 1 and 2^126 and a finite dividend.
template <class D, class V>
HWY_INLINE V Quotient(D /*d*/, V dividend, V divisor) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // 14 bits at once; a step of Newton's method on the quotient itself doubles them and rounds once, where a reciprocal
  // and its product would round twice. A division of 16 lanes takes as long as ten products.
  const V reciprocal = hn::ApproximateReciprocal(divisor);
  const V y = hn::Mul(dividend, reciprocal);
  return hn::NegMulAdd(reciprocal, hn::MulSub(divisor, y, dividend), y);  // -0 stays what it is
#else
  return hn::Div(dividend, divisor);
#endif
}

// factor / (1 + exp(-x)) within 3 ulp for finite factors not far from x, cheaper than Sigmoid; where both are -inf, 0,
// the limit. A lane's bits do not depend on the other lanes.
template <class D, class V>
HWY_INLINE V TimesSigmoid(D d, V factor, V x) {
  const auto normal = HasNormalExp(d, x);
  const V y = Quotient(d, factor, hn::Add(hn::Set(d, 1.0f), ShortExp<true, true>(d, x)));
  if (hn::AllTrue(d, normal)) return y;
  const V rare = hn::Mul(factor, SigmoidOf<false>(d, x));
  const auto vanishes = hn::Eq(x, hn::Set(d, -std::numeric_limits<float>::infinity()));
  return hn::IfThenElse(normal, y, hn::IfThenZeroElse(vanishes, rare));
}

// x * sigmoid(x)
template <class D, class V>
HWY_INLINE V Silu(D d, V x) {
  return TimesSigmoid(d, x, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
