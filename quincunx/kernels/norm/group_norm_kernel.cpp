#include "quincunx/kernels/norm/group_norm_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/norm/group_norm_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_pair-inl.h"
#include "quincunx/kernels/elementwise/rough_math-inl.h"
#include "quincunx/kernels/elementwise/vector_math-inl.h"
#include "quincunx/kernels/norm/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Pair = FloatPair<Tag>;

HWY_INLINE int64_t PairLength() { return static_cast<int64_t>(2 * hn::Lanes(Tag())); }

template <typename T>
GroupStatistics StatisticsOf(const T* x, int64_t count) {
  const RowMoments moments = MomentsOf(x, count);
  return {static_cast<double>(count), static_cast<double>(moments.mean) + moments.correction, moments.squares};
}
GroupStatistics Statistics(DType dtype, const void* x, int64_t count) {
  if (dtype == DType::kBFloat16) return StatisticsOf(static_cast<const BFloat16*>(x), count);
  if (dtype == DType::kFloat16) return StatisticsOf(static_cast<const Float16*>(x), count);
  return StatisticsOf(static_cast<const float*>(x), count);
}

template <typename T>
HWY_INLINE void ChannelMomentsOf(const ChannelRows& in, const float* shift, float* first, float* second) {
  const Tag d;
  for (int64_t c = 0; c < in.channels; c += PairLength()) {
    const Pair offset = LoadPairBeside<T>(d, shift + c);
    const auto zero = hn::Zero(d);
    Pair sum = {zero, zero}, squares = {zero, zero};
    const T* x = static_cast<const T*>(in.x) + c;
    const auto rest = static_cast<size_t>(in.channels - c);
    const bool whole = in.channels - c >= PairLength();
    for (int64_t r = 0; r < in.rows; ++r, x += in.row_stride) {
      Pair v = whole ? LoadPair(d, x) : LoadPairTail(d, x, rest);
      v = {hn::Sub(v.a, offset.a), hn::Sub(v.b, offset.b)};
      sum = {hn::Add(sum.a, v.a), hn::Add(sum.b, v.b)};
      squares = {hn::MulAdd(v.a, v.a, squares.a), hn::MulAdd(v.b, v.b, squares.b)};
    }
    StorePairBeside<T>(sum, d, first + c);
    StorePairBeside<T>(squares, d, second + c);
  }
}
void ChannelMoments(const ChannelRows& in, const float* shift, float* first, float* second) {
  if (in.dtype == DType::kBFloat16) return ChannelMomentsOf<BFloat16>(in, shift, first, second);
  if (in.dtype == DType::kFloat16) return ChannelMomentsOf<Float16>(in, shift, first, second);
  ChannelMomentsOf<float>(in, shift, first, second);
}

struct AffinePairs {
  Pair mean, scale, bias;
};

template <bool kSilu, typename T>
HWY_INLINE Pair AffineOf(Pair v, const AffinePairs& by) {
  const Tag d;
  v = {hn::MulAdd(hn::Sub(v.a, by.mean.a), by.scale.a, by.bias.a),
       hn::MulAdd(hn::Sub(v.b, by.mean.b), by.scale.b, by.bias.b)};
  if constexpr (!kSilu) return v;
  if constexpr (HasRoughMath<T>(Tag())) return RoughSilu(d, v);
  return {Silu(d, v.a), Silu(d, v.b)};
}

// Calls parameters(i) for those of each pair of elements.
template <bool kSilu, typename T, class Parameters>
HWY_INLINE void Affine(const GroupRun& run, const Parameters& parameters) {
  const Tag d;
  const auto* x = static_cast<const T*>(run.x);
  auto* y = static_cast<T*>(run.y);
  int64_t i = 0;
  for (; i + PairLength() <= run.count; i += PairLength()) {
    FetchAhead(x + i, static_cast<size_t>(PairLength()) * sizeof(T), run.ahead);
    StorePair(AffineOf<kSilu, T>(LoadPair(d, x + i), parameters(i)), d, y + i, run.stream);
  }
  const auto rest = static_cast<size_t>(run.count - i);
  if (rest == 0) return;
  StorePairTail(AffineOf<kSilu, T>(LoadPairTail(d, x + i, rest), parameters(i)), d, y + i, rest);
}

// Of one channel.
template <bool kSilu, typename T>
HWY_INLINE void NormalizeOne(const GroupRun& run, const ChannelAffine& channel) {
  const Tag d;
  const auto mean = hn::Set(d, channel.mean), scale = hn::Set(d, channel.scale), bias = hn::Set(d, channel.bias);
  const AffinePairs same = {{mean, mean}, {scale, scale}, {bias, bias}};
  Affine<kSilu, T>(run, [same](int64_t) HWY_ATTR { return same; });
}
// Of channels side by side.
template <bool kSilu, typename T>
HWY_INLINE void NormalizeEach(const GroupRun& run, const ChannelArrays& channels) {
  const Tag d;
  Affine<kSilu, T>(run, [d, channels](int64_t i) HWY_ATTR {
    return AffinePairs{LoadPair(d, channels.mean + i), LoadPair(d, channels.scale + i), LoadPair(d, channels.bias + i)};
  });
}

#define QX_BY_DTYPE(name, of, Parameters)                                                      \
  template <bool kSilu>                                                                        \
  HWY_INLINE void name##WithSilu(const GroupRun& run, const Parameters& parameters) {          \
    if (run.dtype == DType::kBFloat16) return of<kSilu, BFloat16>(run, parameters);            \
    if (run.dtype == DType::kFloat16) return of<kSilu, Float16>(run, parameters);              \
    of<kSilu, float>(run, parameters);                                                         \
  }                                                                                            \
  void name(const GroupRun& run, const Parameters& parameters) {                               \
    run.silu ? name##WithSilu<true>(run, parameters) : name##WithSilu<false>(run, parameters); \
  }
QX_BY_DTYPE(Run, NormalizeOne, ChannelAffine)
QX_BY_DTYPE(Channels, NormalizeEach, ChannelArrays)
#undef QX_BY_DTYPE

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(Statistics);
HWY_EXPORT(ChannelMoments);
HWY_EXPORT(Run);
HWY_EXPORT(Channels);

GroupStatistics run_statistics(DType dtype, const void* x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(Statistics)(dtype, x, count);
}
void channel_moments(const ChannelRows& rows, const float* shift, float* first, float* second) {
  HWY_DYNAMIC_DISPATCH(ChannelMoments)(rows, shift, first, second);
}
void normalize_run(const GroupRun& run, const ChannelAffine& channel) { HWY_DYNAMIC_DISPATCH(Run)(run, channel); }
void normalize_channels(const GroupRun& run, const ChannelArrays& channels) {
  HWY_DYNAMIC_DISPATCH(Channels)(run, channels);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
