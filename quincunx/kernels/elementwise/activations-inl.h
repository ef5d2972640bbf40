// Activations that only the elementwise entries use, on vectors of f32: include from a file that foreach_target.h
// compiles. Errors: see unary.h.
#if defined(QUINCUNX_KERNELS_ELEMENTWISE_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_ELEMENTWISE_ACTIVATIONS_INL_H_
#undef QUINCUNX_KERNELS_ELEMENTWISE_ACTIVATIONS_INL_H_
#else
#define QUINCUNX_KERNELS_ELEMENTWISE_ACTIVATIONS_INL_H_
#endif

#include <hwy/highway.h>

#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V>
HWY_INLINE V Rsqrt(D d, V x) {
  return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x));
}

// NaN stays: it is not below zero.
template <class D, class V>
HWY_INLINE V Relu(D d, V x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
}

template <class D, class V>
HWY_INLINE V Relu6(D d, V x) {
  return Relu(d, hn::IfThenElse(hn::Gt(x, hn::Set(d, 6.0f)), hn::Set(d, 6.0f), x));
}

// min(max(x + 3, 0), 6) / 6
template <class D, class V>
HWY_INLINE V Hardsigmoid(D d, V x) {
  const V shifted = hn::Max(hn::Min(hn::Add(x, hn::Set(d, 3.0f)), hn::Set(d, 6.0f)), hn::Zero(d));
  return hn::IfThenElse(hn::Eq(x, x), hn::Div(shifted, hn::Set(d, 6.0f)), x);
}

// -inf gives 0, its limit.
template <class D, class V>
HWY_INLINE V Hardswish(D d, V x) {
  const V y = hn::Mul(x, Hardsigmoid(d, x));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -3.0f)), y);
}

// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)).
template <class D, class V>
HWY_INLINE V Softplus(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = Exp(d, hn::Neg(hn::Abs(x)));
  const V u = hn::Add(one, e);
  // log(u) misses what rounding took from 1 + e; below half a unit of 1 that is all of e.
  const V lost = hn::Div(hn::Sub(e, hn::Sub(u, one)), u);
  const V y = hn::Add(hn::Max(x, hn::Zero(d)), hn::Add(Log(d, u), lost));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

// x sigmoid(1.702 x)
template <class D, class V>
HWY_INLINE V GeluQuick(D d, V x) {
  return TimesSigmoid(d, x, hn::Mul(x, hn::Set(d, 1.702f)));
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
