// The one-dimensional transforms of F(2, 3) and F(4, 3); the two-dimensional ones apply them to rows and columns.
#if defined(QUINCUNX_KERNELS_WINOGRAD_CONVOLUTION_WINOGRAD_TRANSFORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_WINOGRAD_CONVOLUTION_WINOGRAD_TRANSFORMS_INL_H_
#undef QUINCUNX_KERNELS_WINOGRAD_CONVOLUTION_WINOGRAD_TRANSFORMS_INL_H_
#else
#define QUINCUNX_KERNELS_WINOGRAD_CONVOLUTION_WINOGRAD_TRANSFORMS_INL_H_
#endif

#include <hwy/highway.h>

#include "quincunx/kernels/winograd_convolution/winograd_points.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <int kTile>
struct WinogradTransform;

// The rows of the input's transform are the polynomials that vanish at all points but one, without their scale, which
// is part of the weights.
template <>
struct WinogradTransform<4> {
  static constexpr int kOutputs = 4;
  static constexpr int kInputs = 6;

  template <class D, class V>
  static HWY_INLINE void Input(D d, const V* x, V* v) {
    constexpr double kA2 = kWinogradPointA * kWinogradPointA;
    constexpr double kB2 = kWinogradPointB * kWinogradPointB;
    const V a = hn::Set(d, static_cast<float>(kWinogradPointA));
    const V b = hn::Set(d, static_cast<float>(kWinogradPointB));
    const V a2 = hn::Set(d, static_cast<float>(kA2));
    const V b2 = hn::Set(d, static_cast<float>(kB2));
    const V sum = hn::Set(d, static_cast<float>(kA2 + kB2));
    const V product = hn::Set(d, static_cast<float>(kA2 * kB2));
    const V even_a = hn::NegMulAdd(b2, x[2], x[4]);
    const V odd_a = hn::NegMulAdd(b2, x[1], x[3]);
    const V even_b = hn::NegMulAdd(a2, x[2], x[4]);
    const V odd_b = hn::NegMulAdd(a2, x[1], x[3]);
    v[0] = hn::MulAdd(product, x[0], hn::NegMulAdd(sum, x[2], x[4]));
    v[1] = hn::MulAdd(a, odd_a, even_a);
    v[2] = hn::NegMulAdd(a, odd_a, even_a);
    v[3] = hn::MulAdd(b, odd_b, even_b);
    v[4] = hn::NegMulAdd(b, odd_b, even_b);
    v[5] = hn::MulAdd(product, x[1], hn::NegMulAdd(sum, x[3], x[5]));
  }

  template <class D, class V>
  static HWY_INLINE void Output(D d, const V* m, V* y) {
    constexpr double kA = kWinogradPointA;
    constexpr double kB = kWinogradPointB;
    const V sum_a = hn::Add(m[1], m[2]);
    const V difference_a = hn::Sub(m[1], m[2]);
    const V sum_b = hn::Add(m[3], m[4]);
    const V difference_b = hn::Sub(m[3], m[4]);
    const auto combine = [&](double of_a, V at_a, double of_b, V at_b) HWY_ATTR {
      const V first = hn::Mul(hn::Set(d, static_cast<float>(of_a)), at_a);
      return hn::MulAdd(hn::Set(d, static_cast<float>(of_b)), at_b, first);
    };
    y[0] = hn::Add(m[0], hn::Add(sum_a, sum_b));
    y[1] = combine(kA, difference_a, kB, difference_b);
    y[2] = combine(kA * kA, sum_a, kB * kB, sum_b);
    y[3] = hn::Add(m[5], combine(kA * kA * kA, difference_a, kB * kB * kB, difference_b));
  }
};

template <>
struct WinogradTransform<2> {
  static constexpr int kOutputs = 2;
  static constexpr int kInputs = 4;

  template <class D, class V>
  static HWY_INLINE void Input(D, const V* x, V* v) {
    v[0] = hn::Sub(x[2], x[0]);
    v[1] = hn::Add(x[2], x[1]);
    v[2] = hn::Sub(x[2], x[1]);
    v[3] = hn::Sub(x[3], x[1]);
  }

  template <class D, class V>
  static HWY_INLINE void Output(D, const V* m, V* y) {
    y[0] = hn::Add(m[0], hn::Add(m[1], m[2]));
    y[1] = hn::Add(m[3], hn::Sub(m[1], m[2]));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
