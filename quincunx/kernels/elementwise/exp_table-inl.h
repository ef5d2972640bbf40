// 2^(k / 16) from a register of sixteen values: include from a file that foreach_target.h compiles.
#if defined(QUINCUNX_KERNELS_ELEMENTWISE_EXP_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_ELEMENTWISE_EXP_TABLE_INL_H_
#undef QUINCUNX_KERNELS_ELEMENTWISE_EXP_TABLE_INL_H_
#else
#define QUINCUNX_KERNELS_ELEMENTWISE_EXP_TABLE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether the vectors of D hold a table of sixteen: with it exp needs a polynomial of degree 3 instead of 6, and
// products are what it waits for.
template <class D>
constexpr bool HasExpTable(D) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return hn::MaxLanes(D()) == 16;
#else
  return false;
#endif
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// 2^(k / 16) for shifted = 1.5 * 2^23 + k, where that is a normal number.
template <class D, class V>
HWY_INLINE V SixteenthPowerOfTwo(D /*d*/, V shifted) {
  // The bits of 2^(j / 16) less j << 19, which the addition of k << 19 brings back beside the exponent.
  alignas(64) static constexpr uint32_t kTable[16] = {
      0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532, 0x3f75fed7, 0x3f75583f,
      0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c, 0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d};
  const __m512i k = _mm512_castps_si512(shifted.raw);
  const __m512i roots = _mm512_permutexvar_epi32(k, _mm512_load_si512(kTable));
  return V{_mm512_castsi512_ps(_mm512_add_epi32(roots, _mm512_slli_epi32(k, 19)))};
}
// What rounding took from the table's value for `shifted`, relative to it.
template <class D, class V>
HWY_INLINE V LostFromSixteenthPower(D /*d*/, V shifted) {
  alignas(64) static constexpr float kLost[16] = {0,
                                                  0x1.8d96d4p-25f,
                                                  -0x1.9c0c22p-27f,
                                                  0x1.964904p-25f,
                                                  0x1.125002p-25f,
                                                  0x1.370be4p-25f,
                                                  -0x1.0a3550p-25f,
                                                  -0x1.00d8acp-27f,
                                                  0x1.26055cp-26f,
                                                  -0x1.05cb44p-25f,
                                                  0x1.67a1cap-28f,
                                                  0x1.a3b5e4p-28f,
                                                  -0x1.f9c304p-27f,
                                                  -0x1.6961b4p-28f,
                                                  -0x1.a5217cp-28f,
                                                  0x1.61428ep-28f};
  return V{_mm512_permutexvar_ps(_mm512_castps_si512(shifted.raw), _mm512_load_ps(kLost))};
}
#else
// Never called: HasExpTable is false.
template <class D, class V>
HWY_INLINE V SixteenthPowerOfTwo(D /*d*/, V shifted) {
  return shifted;
}
template <class D, class V>
HWY_INLINE V LostFromSixteenthPower(D /*d*/, V shifted) {
  return shifted;
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
