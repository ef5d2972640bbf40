// Sine and cosine on vectors of f32, for any finite angle: include from a file that foreach_target.h compiles.
// Within 2 units in the last place over all inputs; NaN and infinities give NaN, denormal arguments are kept.
#if defined(QUINCUNX_KERNELS_ELEMENTWISE_SIN_COS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_ELEMENTWISE_SIN_COS_INL_H_
#undef QUINCUNX_KERNELS_ELEMENTWISE_SIN_COS_INL_H_
#else
#define QUINCUNX_KERNELS_ELEMENTWISE_SIN_COS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quincunx/kernels/elementwise/angle_reduction.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x = quadrant * pi/2 + remainder.
template <class D>
struct ReducedAngles {
  hn::Vec<D> remainder;
  hn::Vec<hn::RebindToSigned<D>> quadrant;
};

// In f64, for |x| < 2^28: pi/2 is split so that the product of its first 25 bits with the quadrant is exact.
template <class DF64, class V64>
HWY_INLINE V64 ReduceInDouble(DF64 d, V64 x, V64& quadrant) {
  const V64 shift = hn::Set(d, 0x1.8p52);
  quadrant = hn::Sub(hn::MulAdd(x, hn::Set(d, 6.36619772367581382433e-01), shift), shift);
  const V64 coarse = hn::NegMulAdd(quadrant, hn::Set(d, 1.57079631090164184570e+00), x);
  return hn::NegMulAdd(quadrant, hn::Set(d, 1.58932547735281966916e-08), coarse);
}

template <class D, class V>
HWY_INLINE ReducedAngles<D> ReduceSmallAngles(D d, V x) {
#if HWY_TARGET == HWY_SCALAR
  const hn::Rebind<double, D> wide;
  hn::Vec<decltype(wide)> quadrant;
  const auto r = ReduceInDouble(wide, hn::PromoteTo(wide, x), quadrant);
  return {hn::DemoteTo(d, r), hn::DemoteTo(hn::RebindToSigned<D>(), quadrant)};
#else
  const hn::Half<D> half;
  const hn::Rebind<double, decltype(half)> wide;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<int32_t, decltype(half)> half_i;
  hn::Vec<decltype(wide)> low_quadrant, high_quadrant;
  const auto low = ReduceInDouble(wide, hn::PromoteTo(wide, hn::LowerHalf(half, x)), low_quadrant);
  const auto high = ReduceInDouble(wide, hn::PromoteTo(wide, hn::UpperHalf(half, x)), high_quadrant);
  return {hn::Combine(d, hn::DemoteTo(half, high), hn::DemoteTo(half, low)),
          hn::Combine(di, hn::DemoteTo(half_i, high_quadrant), hn::DemoteTo(half_i, low_quadrant))};
#endif
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define QX_REDUCE_IN_FLOAT 1
#else
#define QX_REDUCE_IN_FLOAT 0
#endif

// In f32, for |x| < 2^12: with fused multiply-add the first difference is exact, because both of its terms are
// multiples of 2^-23 or of x's last place, and the second is rounded once.
template <class D, class V>
HWY_INLINE ReducedAngles<D> ReduceInFloat(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V shift = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0.636619772f), shift);
  const V quadrant = hn::Sub(shifted, shift);
  V r = hn::NegMulAdd(quadrant, hn::Set(d, 0x1.921fb6p0f), x);
  r = hn::NegMulAdd(quadrant, hn::Set(d, -0x1.777a5cp-25f), r);
  r = hn::NegMulAdd(quadrant, hn::Set(d, -0x1.ee59dap-50f), r);
  return {r, hn::BitCast(di, shifted)};
}

template <class D, class V>
HWY_INLINE ReducedAngles<D> ReduceLargeAngles(D d, V x);

// A lane's bits do not depend on the other lanes.
template <class D, class V>
HWY_INLINE ReducedAngles<D> ReduceAngles(D d, V x) {
  if constexpr (!QX_REDUCE_IN_FLOAT) return ReduceLargeAngles(d, x);
  const hn::RebindToSigned<D> di;
  const auto small = hn::Lt(hn::Abs(x), hn::Set(d, 0x1p12f));
  const ReducedAngles<D> angles = ReduceInFloat(d, x);
  if (hn::AllTrue(d, small)) return angles;
  const ReducedAngles<D> others = ReduceLargeAngles(d, x);
  return {hn::IfThenElse(small, angles.remainder, others.remainder),
          hn::IfThenElse(hn::RebindMask(di, small), angles.quadrant, others.quadrant)};
}

template <class D, class V>
HWY_INLINE ReducedAngles<D> ReduceLargeAngles(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto small = hn::Lt(hn::Abs(x), hn::Set(d, 0x1p28f));
  ReducedAngles<D> result = ReduceSmallAngles(d, hn::IfThenElseZero(small, x));
  if (hn::AllTrue(d, small)) return result;
  HWY_ALIGN float angle[hn::MaxLanes(D())];
  HWY_ALIGN float remainder[hn::MaxLanes(D())];
  HWY_ALIGN int32_t quadrant[hn::MaxLanes(D())];
  hn::Store(x, d, angle);
  hn::Store(result.remainder, d, remainder);
  hn::Store(result.quadrant, di, quadrant);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (angle[i] > -0x1p28f && angle[i] < 0x1p28f) continue;
    const ReducedAngle reduced = reduce_large_angle(angle[i]);
    remainder[i] = reduced.remainder;
    quadrant[i] = reduced.quadrant;
  }
  return {hn::Load(d, remainder), hn::Load(di, quadrant)};
}

// Sine for even quadrants and cosine for odd ones, the sign turned in the upper half of four.
template <class D, class V, class VI>
HWY_INLINE V SineOfReduced(D d, V r, VI quadrant) {
  const hn::RebindToSigned<D> di;
  static constexpr float kSine[] = {-1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f};
  static constexpr float kCosine[] = {4.166664568298827e-2f, -1.388731625493765e-3f, 2.443315711809948e-5f};
  const V r2 = hn::Mul(r, r);
  const V sine = hn::MulAdd(hn::Mul(r, r2), Polynomial(d, r2, kSine), r);
  const V head = hn::NegMulAdd(hn::Set(d, 0.5f), r2, hn::Set(d, 1.0f));
  const V cosine = hn::MulAdd(hn::Mul(r2, r2), Polynomial(d, r2, kCosine), head);
  const auto is_odd = hn::RebindMask(d, hn::TestBit(quadrant, hn::Set(di, 1)));
  const V y = hn::IfThenElse(is_odd, cosine, sine);
  const auto sign = hn::ShiftLeft<30>(hn::And(quadrant, hn::Set(di, 2)));
  return hn::Xor(y, hn::BitCast(d, sign));
}

template <class D, class V>
HWY_INLINE V Sin(D d, V x) {
  const ReducedAngles<D> reduced = ReduceAngles(d, x);
  const V y = SineOfReduced(d, reduced.remainder, reduced.quadrant);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);  // keeps -0
}

template <class D, class V>
HWY_INLINE V Cos(D d, V x) {
  const hn::RebindToSigned<D> di;
  const ReducedAngles<D> reduced = ReduceAngles(d, x);
  return SineOfReduced(d, reduced.remainder, hn::Add(reduced.quadrant, hn::Set(di, 1)));
}

#undef QX_REDUCE_IN_FLOAT

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
