// Horner's rule on vectors of f32: include from a file that foreach_target.h compiles.
#if defined(QUINCUNX_KERNELS_ELEMENTWISE_POLYNOMIAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_ELEMENTWISE_POLYNOMIAL_INL_H_
#undef QUINCUNX_KERNELS_ELEMENTWISE_POLYNOMIAL_INL_H_
#else
#define QUINCUNX_KERNELS_ELEMENTWISE_POLYNOMIAL_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// c[0] + c[1] x + c[2] x^2 + ... by Horner's rule.
template <class D, class V, size_t kCount>
HWY_INLINE V Polynomial(D d, V x, const float (&c)[kCount]) {
  V sum = hn::Set(d, c[kCount - 1]);
  for (size_t i = kCount - 1; i-- > 0;) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
