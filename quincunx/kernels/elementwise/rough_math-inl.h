// Functions of bf16 rows, whose result keeps eight bits: include from a file that foreach_target.h compiles. Without
// the tables of AVX-512 they are those of vector_math-inl.h. A lane's bits do not depend on the other lanes.
#if defined(QUINCUNX_KERNELS_ELEMENTWISE_ROUGH_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_ELEMENTWISE_ROUGH_MATH_INL_H_
#undef QUINCUNX_KERNELS_ELEMENTWISE_ROUGH_MATH_INL_H_
#else
#define QUINCUNX_KERNELS_ELEMENTWISE_ROUGH_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "quincunx/base/dtype.h"
#include "quincunx/kernels/convert/float_pair-inl.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether rows of T have functions of their own here.
template <typename T, class D>
constexpr bool HasRoughMath(D) {
  return std::is_same_v<T, BFloat16> && HasExpTable(D());
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// exp(x), or exp(-x) with kNegated, for |x| < 87 within 2^-15: 2^(k/32) from two registers, times 1 + r. The table is
// larger by 2^-15.05, the middle between 1 + r and exp(r), and without the bits that k << 18 brings back.
template <bool kNegated, class D, class V>
HWY_INLINE V RoughExp(D d, V x) {
  alignas(64) static constexpr uint32_t kTable[32] = {
      0x3f8000f8, 0x3f7ece84, 0x3f7dabc6, 0x3f7c9917, 0x3f7b96d0, 0x3f7aa54e, 0x3f79c4ee, 0x3f78f610,
      0x3f783917, 0x3f778e67, 0x3f76f666, 0x3f76717d, 0x3f760018, 0x3f75a2a3, 0x3f75598e, 0x3f75254c,
      0x3f750652, 0x3f74fd15, 0x3f750a12, 0x3f752dc3, 0x3f7568a8, 0x3f75bb44, 0x3f76261b, 0x3f76a9b5,
      0x3f77469e, 0x3f77fd61, 0x3f78ce92, 0x3f79bac4, 0x3f7ac28d, 0x3f7be68a, 0x3f7d2758, 0x3f7e8598};
  constexpr float kSign = kNegated ? -1 : 1;
  const V shift = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::MulAdd(x, hn::Set(d, kSign * 32 * 1.44269504f), shift);
  const V r = hn::NegMulAdd(hn::Sub(shifted, shift), hn::Set(d, kSign * 0.693147181f / 32), x);
  const __m512i k = _mm512_castps_si512(shifted.raw);
  const __m512i roots = _mm512_permutex2var_epi32(_mm512_load_si512(kTable), k, _mm512_load_si512(kTable + 16));
  const V root{_mm512_castsi512_ps(_mm512_add_epi32(roots, _mm512_slli_epi32(k, 18)))};
  return kNegated ? hn::NegMulAdd(root, r, root) : hn::MulAdd(root, r, root);
}

// x / (1 + exp(-x)) within 2^-13.4 of it, by a reciprocal of 14 bits.
template <class D>
HWY_INLINE FloatPair<D> RoughSilu(D d, FloatPair<D> x) {
  const auto one = [d](hn::Vec<D> v) HWY_ATTR {
    return hn::Mul(v, hn::ApproximateReciprocal(hn::Add(hn::Set(d, 1.0f), RoughExp<true>(d, v))));
  };
  const FloatPair<D> y = {one(x.a), one(x.b)};
  // One question for both vectors, of bits: a maximum of numbers may drop a NaN.
  const hn::RebindToUnsigned<D> bits;
  const auto largest = hn::Max(hn::BitCast(bits, hn::Abs(x.a)), hn::BitCast(bits, hn::Abs(x.b)));
  if (HWY_LIKELY(hn::AllTrue(bits, hn::Lt(largest, hn::BitCast(bits, hn::Set(d, 87.0f)))))) return y;
  return {hn::IfThenElse(HasNormalExp(d, x.a), y.a, Silu(d, x.a)),
          hn::IfThenElse(HasNormalExp(d, x.b), y.b, Silu(d, x.b))};
}

// GeluByTable with one term less: phi is within 2^-16.6.
template <class D, class V>
HWY_INLINE V RoughGelu(D d, V x, const float (&table)[3][32]) {
  constexpr float kStep = 43 / 256.0f;
  const V t = hn::Min(hn::Abs(x), hn::Set(d, 31 * kStep));
  const V shift = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::MulAdd(t, hn::Set(d, 1 / kStep), shift);
  const V r = hn::NegMulAdd(hn::Sub(shifted, shift), hn::Set(d, kStep), t);
  const __m512i piece = _mm512_castps_si512(shifted.raw);
  const auto coefficient = [piece, &table](int k) HWY_ATTR {
    return V{_mm512_permutex2var_ps(_mm512_loadu_ps(table[k]), piece, _mm512_loadu_ps(table[k] + 16))};
  };
  const V sum = hn::MulAdd(hn::MulAdd(coefficient(2), r, coefficient(1)), r, coefficient(0));
  const V phi = hn::Add(hn::CopySignToAbs(sum, x), hn::Set(d, 0.5f));
  return hn::Mul(hn::Max(hn::Set(d, std::numeric_limits<float>::lowest()), x), phi);
}
template <class D>
HWY_INLINE FloatPair<D> RoughGeluErf(D d, FloatPair<D> x) {
  static constexpr float kTable[3][32] = {
      {0.000000000e+00f, 6.669596583e-02f, 1.315408051e-01f, 1.928361207e-01f, 2.491680831e-01f, 2.995017171e-01f,
       3.432275951e-01f, 3.801586628e-01f, 4.104852378e-01f, 4.346972108e-01f, 4.534909129e-01f, 4.676739872e-01f,
       4.780804515e-01f, 4.855040312e-01f, 4.906527102e-01f, 4.941245019e-01f, 4.964005947e-01f, 4.978513718e-01f,
       4.987504482e-01f, 4.992921054e-01f, 4.996094108e-01f, 4.997901320e-01f, 4.998902082e-01f, 4.999440610e-01f,
       4.999722540e-01f, 4.999866188e-01f, 4.999937117e-01f, 4.999971092e-01f, 4.999987185e-01f, 4.999994338e-01f,
       4.999997616e-01f, 5.000000000e-01f},
      {3.990008235e-01f, 3.930172920e-01f, 3.767598569e-01f, 3.511447310e-01f, 3.181825578e-01f, 2.803078294e-01f,
       2.400828749e-01f, 1.999209076e-01f, 1.618537903e-01f, 1.273960769e-01f, 9.748948365e-02f, 7.253173739e-02f,
       5.246466771e-02f, 3.689557686e-02f, 2.522610500e-02f, 1.676851511e-02f, 1.083696168e-02f, 6.809087470e-03f,
       4.159477074e-03f, 2.470341744e-03f, 1.426407835e-03f, 8.007534780e-04f, 4.370411043e-04f, 2.319071355e-04f,
       1.196394078e-04f, 6.000710709e-05f, 2.926168963e-05f, 1.387280736e-05f, 6.394366665e-06f, 2.865489932e-06f,
       1.248442118e-06f, 0.000000000e+00f},
      {-5.578987300e-03f, -3.296356276e-02f, -6.319921464e-02f, -8.835183084e-02f, -1.067411676e-01f, -1.175398156e-01f,
       -1.208179593e-01f, -1.173527241e-01f, -1.085731611e-01f, -9.613413364e-02f, -8.173400164e-02f, -6.688490510e-02f,
       -5.277330801e-02f, -4.020120576e-02f, -2.959725074e-02f, -2.107692137e-02f, -1.452758536e-02f, -9.697166272e-03f,
       -6.271274760e-03f, -3.930875566e-03f, -2.388817258e-03f, -1.407843432e-03f, -8.048311574e-04f, -4.463975783e-04f,
       -2.402602986e-04f, -1.255024981e-04f, -6.363442662e-05f, -3.132230995e-05f, -1.496870027e-05f, -6.945841506e-06f,
       -3.129779088e-06f, 0.000000000e+00f}};
  return {RoughGelu(d, x.a, kTable), RoughGelu(d, x.b, kTable)};
}
template <class D>
HWY_INLINE FloatPair<D> RoughGeluTanh(D d, FloatPair<D> x) {
  static constexpr float kTable[3][32] = {
      {0.000000000e+00f, 6.669443846e-02f, 1.315292865e-01f, 1.928009540e-01f, 2.490961254e-01f, 2.993863821e-01f,
       3.430732787e-01f, 3.799819052e-01f, 4.103116095e-01f, 4.345552325e-01f, 4.534048140e-01f, 4.676579535e-01f,
       4.781357944e-01f, 4.856199622e-01f, 4.908103049e-01f, 4.943016171e-01f, 4.965766668e-01f, 4.980107844e-01f,
       4.988839328e-01f, 4.993965030e-01f, 4.996860921e-01f, 4.998432100e-01f, 4.999249876e-01f, 4.999656677e-01f,
       4.999850094e-01f, 4.999937713e-01f, 4.999975264e-01f, 4.999990761e-01f, 4.999996722e-01f, 4.999998808e-01f,
       4.999999702e-01f, 5.000000000e-01f},
      {3.990011215e-01f, 3.929889500e-01f, 3.766618669e-01f, 3.509619534e-01f, 3.179363608e-01f, 2.800527811e-01f,
       2.398908436e-01f, 1.998581439e-01f, 1.619577706e-01f, 1.276628226e-01f, 9.787429869e-02f, 7.296328247e-02f,
       5.286607891e-02f, 3.720473871e-02f, 2.540856972e-02f, 1.682046242e-02f, 1.077941805e-02f, 6.677220110e-03f,
       3.991302568e-03f, 2.298125532e-03f, 1.272196416e-03f, 6.757852389e-04f, 3.437729902e-04f, 1.671349455e-04f,
       7.750225632e-05f, 3.420824578e-05f, 1.434285514e-05f, 5.700984275e-06f, 2.143863867e-06f, 7.612089803e-07f,
       2.546821918e-07f, 0.000000000e+00f},
      {-5.606508348e-03f, -3.311714530e-02f, -6.344667077e-02f, -8.859167248e-02f, -1.068627685e-01f, -1.174623892e-01f,
       -1.205152720e-01f, -1.168930456e-01f, -1.080601066e-01f, -9.569780529e-02f, -8.148017526e-02f, -6.686304510e-02f,
       -5.296729505e-02f, -4.054304212e-02f, -2.999501303e-02f, -2.144438773e-02f, -1.480536629e-02f, -9.860688820e-03f,
       -6.326797884e-03f, -3.904364072e-03f, -2.313293982e-03f, -1.313403132e-03f, -7.131685852e-04f, -3.696036001e-04f,
       -1.824509673e-04f, -8.561264985e-05f, -3.810928320e-05f, -1.606012302e-05f, -6.394723187e-06f, -2.400954827e-06f,
       -8.483485203e-07f, 0.000000000e+00f}};
  return {RoughGelu(d, x.a, kTable), RoughGelu(d, x.b, kTable)};
}
#else
// Never called: HasRoughMath is false.
template <bool kNegated, class D, class V>
HWY_INLINE V RoughExp(D /*d*/, V x) {
  return x;
}
template <class D>
HWY_INLINE FloatPair<D> RoughSilu(D /*d*/, FloatPair<D> x) {
  return x;
}
template <class D>
HWY_INLINE FloatPair<D> RoughGeluErf(D /*d*/, FloatPair<D> x) {
  return x;
}
template <class D>
HWY_INLINE FloatPair<D> RoughGeluTanh(D /*d*/, FloatPair<D> x) {
  return x;
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
