// Vectors of f32 read from and written to f32, bf16 and f16 memory. Stores round to nearest even; NaN stays NaN.
// Include from a file that foreach_target.h compiles.
#if defined(QUINCUNX_KERNELS_CONVERT_FLOAT_STORAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_CONVERT_FLOAT_STORAGE_INL_H_
#undef QUINCUNX_KERNELS_CONVERT_FLOAT_STORAGE_INL_H_
#else
#define QUINCUNX_KERNELS_CONVERT_FLOAT_STORAGE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "quincunx/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadFloat(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE void StoreFloat(hn::Vec<D> v, D d, float* p) {
  hn::StoreU(v, d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloat(D d, const BFloat16* p) {
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<uint32_t, D> du32;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}
template <class D>
HWY_INLINE void StoreFloat(hn::Vec<D> v, D /*d*/, BFloat16* p) {
  // Not Highway 1.0.3's DemoteTo: it truncates.
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<int32_t, D> di32;
  const hn::Rebind<uint32_t, D> du32;
  const auto bits = hn::BitCast(du32, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto bias = hn::Add(hn::Set(du32, 0x7fffu), hn::And(upper, hn::Set(du32, 1u)));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, bias));
  const auto quiet_nan = hn::Or(upper, hn::Set(du32, 0x40u));
  const auto is_number = hn::RebindMask(du32, hn::Eq(v, v));
  const auto narrow = hn::IfThenElse(is_number, rounded, quiet_nan);
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di32, narrow)), du16, reinterpret_cast<uint16_t*>(p));
}

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
// Highway's conversions without F16C truncate and lose infinities and NaN: the scalar ones of base/dtype.h instead.
template <class D>
HWY_INLINE hn::Vec<D> LoadFloat(D d, const Float16* p) {
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = float_from_float16_bits(p[i].bits);
  return hn::Load(d, lanes);
}
template <class D>
HWY_INLINE void StoreFloat(hn::Vec<D> v, D d, Float16* p) {
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) p[i].bits = float16_bits_from_float(lanes[i]);
}
#else
template <class D>
HWY_INLINE hn::Vec<D> LoadFloat(D d, const Float16* p) {
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::LoadU(df16, reinterpret_cast<const hwy::float16_t*>(p)));
}
template <class D>
HWY_INLINE void StoreFloat(hn::Vec<D> v, D /*d*/, Float16* p) {
  const hn::Rebind<hwy::float16_t, D> df16;
  hn::StoreU(hn::DemoteTo(df16, v), df16, reinterpret_cast<hwy::float16_t*>(p));
}
#endif

// The first `count` < Lanes(d) elements; nothing beyond them is touched, and the other lanes are zero.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadFloatTail(D d, const T* p, size_t count) {
  T lanes[hn::MaxLanes(D())] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = p[i];
  return LoadFloat(d, lanes);
}
template <class D, typename T>
HWY_INLINE void StoreFloatTail(hn::Vec<D> v, D d, T* p, size_t count) {
  T lanes[hn::MaxLanes(D())];
  StoreFloat(v, d, lanes);
  for (size_t i = 0; i < count; ++i) p[i] = lanes[i];
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// These targets' masked moves do not fault on the lanes that are left out.
template <class D>
HWY_INLINE hn::Vec<D> LoadFloatTail(D d, const float* p, size_t count) {
  return hn::MaskedLoad(hn::FirstN(d, count), d, p);
}
template <class D>
HWY_INLINE void StoreFloatTail(hn::Vec<D> v, D d, float* p, size_t count) {
  hn::BlendedStore(v, hn::FirstN(d, count), d, p);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
