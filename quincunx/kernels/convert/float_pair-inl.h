// Two vectors of f32 at a time, read from and written to f32, bf16 and f16 memory without a buffer between. Stores
// round to nearest even; NaN stays NaN. Include from a file that foreach_target.h compiles.
#if defined(QUINCUNX_KERNELS_CONVERT_FLOAT_PAIR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_CONVERT_FLOAT_PAIR_INL_H_
#undef QUINCUNX_KERNELS_CONVERT_FLOAT_PAIR_INL_H_
#else
#define QUINCUNX_KERNELS_CONVERT_FLOAT_PAIR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "quincunx/base/dtype.h"
#include "quincunx/kernels/convert/bfloat16_instructions.h"
#include "quincunx/kernels/convert/float_storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Of 2 Lanes(d) elements in a row `a` has the first half and `b` the second; of bf16 `a` has those of even and `b`
// those of odd index, because a word of two needs no shuffle then. Element by element the order does not matter; f32
// arrays that meet a bf16 row are arranged by ArrangeForPairs.
template <class D>
struct FloatPair {
  hn::Vec<D> a;
  hn::Vec<D> b;
};

template <typename T>
inline constexpr bool kPairsAreInterleaved = HWY_TARGET != HWY_SCALAR && std::is_same_v<T, BFloat16>;

template <class D, typename T>
HWY_INLINE FloatPair<D> LoadPair(D d, const T* p) {
  return {LoadFloat(d, p), LoadFloat(d, p + hn::Lanes(d))};
}

// Whether the lower halves of NaN may be other than zero. Arithmetic on bf16 alone hands on NaN whose are.
enum class NaNBits { kAny, kOfBFloat16 };

#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE FloatPair<D> LoadPair(D d, const BFloat16* p) {
  const hn::Repartition<uint16_t, D> du16;
  const hn::RebindToUnsigned<D> du32;
  const auto both = hn::BitCast(du32, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
  return {hn::BitCast(d, hn::ShiftLeft<16>(both)), hn::BitCast(d, hn::And(both, hn::Set(du32, 0xffff0000u)))};
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// Where `words` can be had from vcvtne2ps2bf16, which takes denormals for zero. As text, because this target promises
// the instruction to no compiler.
template <class D, class V>
HWY_INLINE bool PackByInstruction(D /*d*/, FloatPair<D> pair, V& words) {
  if (!has_bfloat16_instructions) return false;
  constexpr int kDenormal = 0x20;
  const __mmask16 in_a = _mm512_fpclass_ps_mask(pair.a.raw, kDenormal);
  const __mmask16 in_b = _mm512_fpclass_ps_mask(pair.b.raw, kDenormal);
  if (HWY_UNLIKELY(_mm512_kortestz(in_a, in_b) == 0)) return false;
  alignas(64) static constexpr uint16_t kInterleaved[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                            21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                            11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  __m512i halves;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(halves) : "v"(pair.b.raw), "v"(pair.a.raw));
  words = V{_mm512_permutexvar_epi16(_mm512_load_si512(kInterleaved), halves)};
  return true;
}
#else
template <class D, class V>
HWY_INLINE bool PackByInstruction(D /*d*/, FloatPair<D> /*pair*/, V& /*words*/) {
  return false;
}
#endif

// The upper halves of the words of both, rounded by the lower ones; NaN must be quiet, as arithmetic makes it.
template <NaNBits kNaN = NaNBits::kAny, class D>
HWY_INLINE hn::Vec<hn::Repartition<uint16_t, D>> PackPair(D d, FloatPair<D> pair) {
  const hn::RebindToUnsigned<D> du32;
  const hn::Repartition<uint16_t, D> du16;
  hn::Vec<decltype(du16)> words;
  if (HWY_LIKELY(PackByInstruction(d, pair, words))) return words;
  const auto a = hn::BitCast(du32, pair.a), b = hn::BitCast(du32, pair.b);
  const auto high = hn::OddEven(hn::BitCast(du16, b), hn::BitCast(du16, hn::ShiftRight<16>(a)));
  const auto low = hn::OddEven(hn::BitCast(du16, hn::ShiftLeft<16>(b)), hn::BitCast(du16, a));
  // low + 0x7fff + (the last bit of high) carries where the half rounds up, to even in the middle.
  const auto bias = hn::Or(hn::And(high, hn::Set(du16, uint16_t{1})), hn::Set(du16, uint16_t{0x7ffe}));
  const auto rounded = hn::Add(high, hn::ShiftRight<15>(hn::AverageRound(low, bias)));
  if constexpr (kNaN == NaNBits::kOfBFloat16) return rounded;
  // Of all ones, a NaN, the carry would make a zero.
  const auto all_ones = hn::Eq(hn::Add(high, high), hn::Set(du16, uint16_t{0xfffe}));
  return hn::IfThenElse(all_ones, high, rounded);
}
#endif

template <class D, typename T>
HWY_INLINE void StorePair(FloatPair<D> pair, D d, T* p) {
  StoreFloat(pair.a, d, p);
  StoreFloat(pair.b, d, p + hn::Lanes(d));
}
#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE void StorePair(FloatPair<D> pair, D d, BFloat16* p) {
  hn::StoreU(PackPair(d, pair), hn::Repartition<uint16_t, D>(), reinterpret_cast<uint16_t*>(p));
}
#endif

// Past the caches, for results that do not fit into them: no line is read only to be overwritten. `p` is aligned to a
// vector of D.
template <class D>
HWY_INLINE void StreamPair(FloatPair<D> pair, D d, float* p) {
  hn::Stream(pair.a, d, p);
  hn::Stream(pair.b, d, p + hn::Lanes(d));
}
template <class D>
HWY_INLINE void StreamPair(FloatPair<D> pair, D d, BFloat16* p) {
#if HWY_TARGET == HWY_SCALAR
  StorePair(pair, d, p);
#else
  hn::Stream(PackPair(d, pair), hn::Repartition<uint16_t, D>(), reinterpret_cast<uint16_t*>(p));
#endif
}
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
template <class D>
HWY_INLINE void StreamPair(FloatPair<D> pair, D /*d*/, Float16* p) {
  const hn::Rebind<hwy::float16_t, D> df16;
  const hn::RebindToUnsigned<decltype(df16)> du16;
  const hn::Repartition<uint16_t, D> both;
  const auto halves =
      hn::Combine(both, hn::BitCast(du16, hn::DemoteTo(df16, pair.b)), hn::BitCast(du16, hn::DemoteTo(df16, pair.a)));
  hn::Stream(halves, both, reinterpret_cast<uint16_t*>(p));
}
#else
template <class D>
HWY_INLINE void StreamPair(FloatPair<D> pair, D d, Float16* p) {
  StorePair(pair, d, p);
}
#endif

template <NaNBits kNaN = NaNBits::kAny, class D, typename T>
HWY_INLINE void StorePair(FloatPair<D> pair, D d, T* p, bool stream) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Repartition<uint16_t, D> du16;
    const auto words = PackPair<kNaN>(d, pair);
    auto* to = reinterpret_cast<uint16_t*>(p);
    return stream ? hn::Stream(words, du16, to) : hn::StoreU(words, du16, to);
  }
#endif
  stream ? StreamPair(pair, d, p) : StorePair(pair, d, p);
}

// Fetches the lines `ahead` bytes behind those of `bytes` at p into L2, nothing where `ahead` is 0. They may lie beyond
// the array: a prefetch does not fault.
HWY_INLINE void FetchAhead(const void* p, size_t bytes, int64_t ahead) {
  if (ahead == 0) return;
  const uintptr_t first = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(ahead);
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(reinterpret_cast<const void*>(first + i), 0, 2);  // NOLINT
}

// The first `count` < 2 Lanes(d) elements; nothing beyond them is touched, and the other lanes are zero.
template <class D, typename T>
HWY_INLINE FloatPair<D> LoadPairTail(D d, const T* p, size_t count) {
  T lanes[2 * hn::MaxLanes(D())] = {};
  std::memcpy(lanes, p, count * sizeof(T));
  return LoadPair(d, lanes);
}
template <class D, typename T>
HWY_INLINE void StorePairTail(FloatPair<D> pair, D d, T* p, size_t count) {
  T lanes[2 * hn::MaxLanes(D())];
  StorePair(pair, d, lanes);
  std::memcpy(p, lanes, count * sizeof(T));
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// These targets' masked moves do not fault on the lanes that are left out.
template <class D>
HWY_INLINE FloatPair<D> LoadPairTail(D d, const float* p, size_t count) {
  const size_t lanes = hn::Lanes(d);
  if (count <= lanes) return {LoadFloatTail(d, p, count), hn::Zero(d)};
  return {hn::LoadU(d, p), LoadFloatTail(d, p + lanes, count - lanes)};
}
template <class D>
HWY_INLINE void StorePairTail(FloatPair<D> pair, D d, float* p, size_t count) {
  const size_t lanes = hn::Lanes(d);
  if (count <= lanes) return StoreFloatTail(pair.a, d, p, count);
  hn::StoreU(pair.a, d, p);
  StoreFloatTail(pair.b, d, p + lanes, count - lanes);
}
#endif

// Of f32 arrays that meet rows of T in their own order, read and written seldom.
template <typename T, class D>
HWY_INLINE FloatPair<D> LoadPairBeside(D d, const float* p) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kPairsAreInterleaved<T>) {
    FloatPair<D> pair;
    hn::LoadInterleaved2(d, p, pair.a, pair.b);
    return pair;
  }
#endif
  return LoadPair(d, p);
}
template <typename T, class D>
HWY_INLINE void StorePairBeside(FloatPair<D> pair, D d, float* p) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kPairsAreInterleaved<T>) return hn::StoreInterleaved2(pair.a, pair.b, d, p);
#endif
  StorePair(pair, d, p);
}

// The lanes of the first `count` elements; those of the others become `otherwise`.
template <typename T, class D>
HWY_INLINE FloatPair<D> KeepFirst(D d, FloatPair<D> pair, size_t count, hn::Vec<D> otherwise) {
  const auto place = hn::Iota(d, 0.0f);
  const float step = kPairsAreInterleaved<T> ? 2.0f : 1.0f;
  const float second = kPairsAreInterleaved<T> ? 1.0f : static_cast<float>(hn::Lanes(d));
  const auto a = hn::Mul(place, hn::Set(d, step));
  const auto limit = hn::Set(d, static_cast<float>(count));
  const auto b = hn::Add(a, hn::Set(d, second));
  return {hn::IfThenElse(hn::Lt(a, limit), pair.a, otherwise), hn::IfThenElse(hn::Lt(b, limit), pair.b, otherwise)};
}

// `values` in the order in which pairs of T have them, for LoadPair of f32. `arranged` has room for a multiple of
// 2 Lanes(d) elements, which is filled up with zeros.
template <typename T, class D>
HWY_INLINE void ArrangeForPairs(D d, const float* values, size_t count, float* arranged) {
  const size_t lanes = hn::Lanes(d);
  for (size_t first = 0; first < count; first += 2 * lanes) {
    for (size_t i = 0; i < 2 * lanes; ++i) {
      const size_t to = !kPairsAreInterleaved<T> ? i : i / 2 + (i % 2) * lanes;
      arranged[first + to] = first + i < count ? values[first + i] : 0;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif
