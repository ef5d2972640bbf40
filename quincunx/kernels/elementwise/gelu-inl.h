// GELU on vectors of f32, inlined per target: include from a file that foreach_target.h compiles. Both forms are
// x phi(x), with phi within 2^-22; no lane takes another path than its neighbours.
#if defined(QUINCUNX_KERNELS_ELEMENTWISE_GELU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_ELEMENTWISE_GELU_INL_H_
#undef QUINCUNX_KERNELS_ELEMENTWISE_GELU_INL_H_
#else
#define QUINCUNX_KERNELS_ELEMENTWISE_GELU_INL_H_
#endif

#include <hwy/highway.h>

#include <limits>

#include "quincunx/kernels/elementwise/polynomial-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// phi(x) = 1/2 + x P(s), s = 2 (x / reach)^2 - 1 capped at 1: beyond the reach the product passes 1/2. In s, which
// stays within [-1, 1], the sum does not cancel as it would in x^2.
template <class D, class V, size_t kCount>
HWY_INLINE V GeluByPolynomial(D d, V x, float reach, const float (&coefficients)[kCount]) {
  const V one = hn::Set(d, 1.0f);
  const V s = hn::Min(hn::MulSub(hn::Mul(x, hn::Set(d, 2 / (reach * reach))), x, one), one);
  const V phi = hn::MulAdd(x, Polynomial(d, s, coefficients), hn::Set(d, 0.5f));
  const V y = hn::Mul(x, hn::Max(hn::Min(phi, one), hn::Zero(d)));
  return hn::IfThenZeroElse(hn::Eq(x, hn::Set(d, -std::numeric_limits<float>::infinity())), y);
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// phi(|x|) - 1/2 = table[0] + table[1] r + ... about the nearest multiple of 43/256, by two registers a coefficient: a
// third of the polynomial's products. The last of 32 pieces ends at exactly 1/2.
template <class D, class V>
HWY_INLINE V GeluByTable(D d, V x, const float (&table)[4][32]) {
  constexpr float kStep = 43 / 256.0f;
  const V t = hn::Min(hn::Abs(x), hn::Set(d, 31 * kStep));
  const V shift = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::MulAdd(t, hn::Set(d, 1 / kStep), shift);
  const V r = hn::NegMulAdd(hn::Sub(shifted, shift), hn::Set(d, kStep), t);
  const __m512i piece = _mm512_castps_si512(shifted.raw);  // its low five bits count
  const auto coefficient = [piece, &table](int k) HWY_ATTR {
    return V{_mm512_permutex2var_ps(_mm512_loadu_ps(table[k]), piece, _mm512_loadu_ps(table[k] + 16))};
  };
  V sum = hn::MulAdd(coefficient(3), r, coefficient(2));
  sum = hn::MulAdd(sum, r, coefficient(1));
  sum = hn::MulAdd(sum, r, coefficient(0));
  const V phi = hn::Add(hn::CopySignToAbs(sum, x), hn::Set(d, 0.5f));
  // NaN passes this maximum; -inf times 0 does not reach the product.
  return hn::Mul(hn::Max(hn::Set(d, std::numeric_limits<float>::lowest()), x), phi);
}
#endif

template <class D, class V, size_t kCount>
HWY_INLINE V Gelu(D d, V x, float reach, const float (&coefficients)[kCount],
                  [[maybe_unused]] const float (&table)[4][32]) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (hn::MaxLanes(D()) == 16) return GeluByTable(d, x, table);
#endif
  return GeluByPolynomial(d, x, reach, coefficients);
}

// x/2 * (1 + erf(x / sqrt 2)); -inf gives 0, its limit.
template <class D, class V>
HWY_INLINE V GeluErf(D d, V x) {
  static constexpr float kPolynomial[] = {1.386053264e-01f, -6.900344789e-02f, 5.077882856e-02f, -4.021038860e-02f,
                                          3.177651390e-02f, -2.411072329e-02f, 1.714901067e-02f, -1.158987544e-02f,
                                          7.593828719e-03f, -4.163559526e-03f, 1.632564701e-03f, -1.022153767e-03f,
                                          9.545201901e-04f, -3.512720286e-04f};
  static constexpr float kTable[4][32] = {
      {0.000000000e+00f, 6.669601798e-02f, 1.315409094e-01f, 1.928362399e-01f, 2.491682172e-01f, 2.995018661e-01f,
       3.432276249e-01f, 3.801587522e-01f, 4.104852974e-01f, 4.346972406e-01f, 4.534909129e-01f, 4.676739573e-01f,
       4.780804217e-01f, 4.855039716e-01f, 4.906526506e-01f, 4.941244721e-01f, 4.964005649e-01f, 4.978513718e-01f,
       4.987504184e-01f, 4.992921054e-01f, 4.996094108e-01f, 4.997901320e-01f, 4.998902082e-01f, 4.999440610e-01f,
       4.999722540e-01f, 4.999866188e-01f, 4.999937117e-01f, 4.999971092e-01f, 4.999987185e-01f, 4.999994338e-01f,
       4.999997616e-01f, 5.000000000e-01f},
      {3.989424706e-01f, 3.933537900e-01f, 3.770543337e-01f, 3.513755798e-01f, 3.183363974e-01f, 2.803806365e-01f,
       2.400804758e-01f, 1.998539120e-01f, 1.617392749e-01f, 1.272522211e-01f, 9.733346850e-02f, 7.237791270e-02f,
       5.232350528e-02f, 3.677346557e-02f, 2.512575872e-02f, 1.668978482e-02f, 1.077777520e-02f, 6.766348612e-03f,
       4.129775334e-03f, 2.450446831e-03f, 1.413548947e-03f, 7.927261177e-04f, 4.321974120e-04f, 2.290803386e-04f,
       1.180429463e-04f, 5.913421774e-05f, 2.879944986e-05f, 1.363565389e-05f, 6.276452041e-06f, 2.808657655e-06f,
       1.221883394e-06f, 9.654689165e-06f},
      {-1.247558612e-05f, -3.297798336e-02f, -6.322602928e-02f, -8.838745952e-02f, -1.067810953e-01f, -1.175792813e-01f,
       -1.208369955e-01f, -1.173805073e-01f, -1.085922047e-01f, -9.614425153e-02f, -8.173622191e-02f, -6.688084453e-02f,
       -5.276510119e-02f, -4.019080102e-02f, -2.958628908e-02f, -2.106659114e-02f, -1.451860741e-02f, -9.689853527e-03f,
       -6.265641190e-03f, -3.926744685e-03f, -2.385923406e-03f, -1.405900577e-03f, -8.035781793e-04f, -4.456200986e-04f,
       -2.397954813e-04f, -1.252344664e-04f, -6.348522584e-05f, -3.124207433e-05f, -1.492698811e-05f, -6.924868103e-06f,
       -3.119574558e-06f, 2.162402961e-04f},
      {-6.630139053e-02f, -6.361129135e-02f, -5.567283183e-02f, -4.364459962e-02f, -2.909179777e-02f, -1.378771756e-02f,
       5.840643425e-04f,  1.267985441e-02f,  2.165275253e-02f,  2.719785459e-02f,  2.949535288e-02f,  2.908085100e-02f,
       2.668641508e-02f,  2.308488451e-02f,  1.897016726e-02f,  1.488392428e-02f,  1.118898299e-02f,  8.079694584e-03f,
       5.615114700e-03f,  3.761146218e-03f,  2.430992899e-03f,  1.517589320e-03f,  9.157214081e-04f,  5.344238016e-04f,
       3.018229036e-04f,  1.650282356e-04f,  8.739198529e-05f,  4.483704470e-05f,  2.229360871e-05f,  1.074514148e-05f,
       5.021455763e-06f,  1.482757274e-03f},
  };
  return Gelu(d, x, 5.1f, kPolynomial, kTable);
}

// x/2 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); -inf gives 0, its limit.
template <class D, class V>
HWY_INLINE V GeluTanh(D d, V x) {
  static constexpr float kPolynomial[] = {1.472335160e-01f, -7.306249440e-02f, 5.305652693e-02f, -4.068261757e-02f,
                                          3.035731055e-02f, -2.120509557e-02f, 1.384239830e-02f, -8.933849633e-03f,
                                          5.286348518e-03f, -1.886329614e-03f, 8.575076354e-04f, -1.880193478e-03f,
                                          1.241026330e-03f, 2.625780471e-04f,  -3.200110514e-04f};
  static constexpr float kTable[4][32] = {
      {0.000000000e+00f, 6.669449061e-02f, 1.315293759e-01f, 1.928010881e-01f, 2.490962744e-01f, 2.993865311e-01f,
       3.430733383e-01f, 3.799819946e-01f, 4.103116691e-01f, 4.345552623e-01f, 4.534048438e-01f, 4.676579535e-01f,
       4.781357646e-01f, 4.856199324e-01f, 4.908102751e-01f, 4.943015873e-01f, 4.965766370e-01f, 4.980107546e-01f,
       4.988839328e-01f, 4.993964732e-01f, 4.996860623e-01f, 4.998432100e-01f, 4.999249578e-01f, 4.999656677e-01f,
       4.999850094e-01f, 4.999937713e-01f, 4.999975264e-01f, 4.999990761e-01f, 4.999996722e-01f, 4.999998808e-01f,
       4.999999702e-01f, 5.000000000e-01f},
      {3.989424706e-01f, 3.933268189e-01f, 3.769568503e-01f, 3.511921167e-01f, 3.180884421e-01f, 2.801232934e-01f,
       2.398864031e-01f, 1.997899264e-01f, 1.618433893e-01f, 1.275204122e-01f, 9.772057831e-02f, 7.281191647e-02f,
       5.272689834e-02f, 3.708371148e-02f, 2.530832216e-02f, 1.674103923e-02f, 1.071909722e-02f, 6.633267272e-03f,
       3.960579168e-03f, 2.277540741e-03f, 1.258993289e-03f, 6.676911726e-04f, 3.390388156e-04f, 1.644980803e-04f,
       7.610634202e-05f, 3.350727275e-05f, 1.400960718e-05f, 5.551287359e-06f, 2.080447985e-06f, 7.359227538e-07f,
       2.452101739e-07f, 1.065901529e-06f},
      {-1.276033709e-05f, -3.313188627e-02f, -6.347402930e-02f, -8.862789720e-02f, -1.069031358e-01f, -1.175019518e-01f,
       -1.205412000e-01f, -1.169202328e-01f, -1.080784500e-01f, -9.570734948e-02f, -8.148213476e-02f, -6.685908884e-02f,
       -5.295945331e-02f, -4.053313285e-02f, -2.998451330e-02f, -2.143437229e-02f, -1.479651500e-02f, -9.853337891e-03f,
       -6.321022287e-03f, -3.900056472e-03f, -2.310241107e-03f, -1.311346772e-03f, -7.118534995e-04f, -3.688060970e-04f,
       -1.819930330e-04f, -8.536407404e-05f, -3.798193575e-05f, -1.599865936e-05f, -6.366823527e-06f, -2.389064321e-06f,
       -8.435989685e-07f, 2.328292612e-05f},
      {-6.662616879e-02f, -6.387554854e-02f, -5.576803908e-02f, -4.351618141e-02f, -2.876014449e-02f, -1.334875822e-02f,
       9.876473341e-04f,  1.290993765e-02f,  2.162848413e-02f,  2.692537010e-02f,  2.906130068e-02f,  2.861482836e-02f,
       2.631189488e-02f,  2.287984826e-02f,  1.895120740e-02f,  1.501457114e-02f,  1.140337903e-02f,  8.309248835e-03f,
       5.808222108e-03f,  3.891601227e-03f,  2.496107016e-03f,  1.530237729e-03f,  8.950406336e-04f,  4.985340056e-04f,
       2.639199665e-04f,  1.325331541e-04f,  6.300888344e-05f,  2.830468839e-05f,  1.199096550e-05f,  4.781388725e-06f,
       1.791129421e-06f,  1.609808824e-04f},
  };
  return Gelu(d, x, 4.8f, kPolynomial, kTable);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
