#include "quincunx/kernels/norm/group_norm_kernel.h"

#include <algorithm>

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

// Rows that meet a channel's sums in registers; each is read from end to end.
constexpr int64_t kRowsTogether = 8;

// The next `rows` <= kRowsTogether rows join the sums, which are in the order of pairs.
template <typename T, bool kWhole>
HWY_INLINE void AddRows(const T* x, int64_t rows, int64_t row_stride, size_t count, const float* shift, float* first,
                        float* second) {
  const Tag d;
  const Pair offset = LoadPair(d, shift);
  Pair sum = LoadPair(d, first), squares = LoadPair(d, second);
  for (int64_t r = 0; r < rows; ++r, x += row_stride) {
    FetchAhead(x, static_cast<size_t>(PairLength()) * sizeof(T),
               static_cast<int64_t>(sizeof(T)) * kRowsTogether * row_stride);
    Pair v = kWhole ? LoadPair(d, x) : LoadPairTail(d, x, count);
    // The same difference by another unit, as in MomentSums.
    v = {hn::Sub(v.a, offset.a), hn::MulSub(v.b, hn::Set(d, 1.0f), offset.b)};
    sum = {hn::Add(sum.a, v.a), hn::Add(sum.b, v.b)};
    squares = {hn::MulAdd(v.a, v.a, squares.a), hn::MulAdd(v.b, v.b, squares.b)};
  }
  StorePair(sum, d, first);
  StorePair(squares, d, second);
}

template <typename T>
HWY_INLINE void ChannelMomentsOf(const ChannelRows& in, const float* shift, float* first, float* second) {
  const Tag d;
  const auto none = Pair{hn::Zero(d), hn::Zero(d)};
  for (int64_t c = 0; c < in.channels; c += PairLength()) StorePair(none, d, first + c), StorePair(none, d, second + c);
  const int64_t whole = in.channels - in.channels % PairLength();
  const auto rest = static_cast<size_t>(in.channels - whole);
  const T* x = static_cast<const T*>(in.x);
  for (int64_t r = 0; r < in.rows; r += kRowsTogether, x += kRowsTogether * in.row_stride) {
    const int64_t rows = std::min(kRowsTogether, in.rows - r);
    for (int64_t c = 0; c < whole; c += PairLength()) {
      if (HWY_LIKELY(rows == kRowsTogether)) {
        AddRows<T, true>(x + c, kRowsTogether, in.row_stride, 0, shift + c, first + c, second + c);
      } else {
        AddRows<T, true>(x + c, rows, in.row_stride, 0, shift + c, first + c, second + c);
      }
    }
    if (rest == 0) continue;
    AddRows<T, false>(x + whole, rows, in.row_stride, rest, shift + whole, first + whole, second + whole);
  }
  for (int64_t c = 0; kPairsAreInterleaved<T> && c < in.channels; c += PairLength()) {
    StorePairBeside<T>(LoadPair(d, first + c), d, first + c);
    StorePairBeside<T>(LoadPair(d, second + c), d, second + c);
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

// Without a mean, which has joined the bias, an operation a vector is saved.
struct AffineForm {
  bool silu;
  bool has_mean;
};

template <AffineForm kForm, typename T>
HWY_INLINE Pair AffineOf(Pair v, const AffinePairs& by) {
  const Tag d;
  if constexpr (kForm.has_mean) v = {hn::Sub(v.a, by.mean.a), hn::Sub(v.b, by.mean.b)};
  v = {hn::MulAdd(v.a, by.scale.a, by.bias.a), hn::MulAdd(v.b, by.scale.b, by.bias.b)};
  if constexpr (!kForm.silu) return v;
  if constexpr (HasRoughMath<T>(Tag())) return RoughSilu(d, v);
  return {Silu(d, v.a), Silu(d, v.b)};
}

// Calls parameters(i) for those of each pair of elements.
template <AffineForm kForm, typename T, class Parameters>
HWY_INLINE void Affine(const GroupRun& run, const Parameters& parameters) {
  const Tag d;
  const auto* x = static_cast<const T*>(run.x);
  auto* y = static_cast<T*>(run.y);
  int64_t i = 0;
  for (; i + PairLength() <= run.count; i += PairLength()) {
    FetchAhead(x + i, static_cast<size_t>(PairLength()) * sizeof(T), run.ahead);
    StorePair(AffineOf<kForm, T>(LoadPair(d, x + i), parameters(i)), d, y + i, run.stream);
  }
  const auto rest = static_cast<size_t>(run.count - i);
  if (rest == 0) return;
  StorePairTail(AffineOf<kForm, T>(LoadPairTail(d, x + i, rest), parameters(i)), d, y + i, rest);
}

// Of one channel.
template <AffineForm kForm, typename T>
HWY_INLINE void NormalizeOne(const GroupRun& run, const ChannelAffine& channel) {
  const Tag d;
  const auto mean = hn::Set(d, channel.mean), scale = hn::Set(d, channel.scale), bias = hn::Set(d, channel.bias);
  const AffinePairs same = {{mean, mean}, {scale, scale}, {bias, bias}};
  Affine<kForm, T>(run, [same](int64_t) HWY_ATTR { return same; });
}
// Of channels side by side, row by row.
template <AffineForm kForm, typename T>
HWY_INLINE void NormalizeEach(GroupRun run, const RowSteps& steps, const ChannelArrays& channels) {
  const Tag d;
  for (int64_t r = 0; r < steps.rows; ++r) {
    Affine<kForm, T>(run, [d, channels](int64_t i) HWY_ATTR {
      return AffinePairs{LoadPair(d, channels.mean + i), LoadPair(d, channels.scale + i),
                         LoadPair(d, channels.bias + i)};
    });
    run.x = static_cast<const char*>(run.x) + steps.x_bytes;
    run.y = static_cast<char*>(run.y) + steps.y_bytes;
  }
}

// Calls body with a tag of the form as its template argument. Of f32 the mean is always taken off first.
template <typename T, class Body>
HWY_INLINE void WithForm(bool silu, bool has_mean, const Body& body) {
  if constexpr (sizeof(T) < sizeof(float)) {
    if (!has_mean) {
      return silu ? body.template operator()<AffineForm{true, false}>()
                  : body.template operator()<AffineForm{false, false}>();
    }
  }
  silu ? body.template operator()<AffineForm{true, true}>() : body.template operator()<AffineForm{false, true}>();
}

template <typename T>
HWY_INLINE void RunOf(const GroupRun& run, const ChannelAffine& channel) {
  WithForm<T>(run.silu, channel.mean != 0, [&]<AffineForm kForm>() HWY_ATTR { NormalizeOne<kForm, T>(run, channel); });
}
void Run(const GroupRun& run, const ChannelAffine& channel) {
  if (run.dtype == DType::kBFloat16) return RunOf<BFloat16>(run, channel);
  if (run.dtype == DType::kFloat16) return RunOf<Float16>(run, channel);
  RunOf<float>(run, channel);
}
template <typename T>
HWY_INLINE void ChannelsOf(const GroupRun& run, const RowSteps& steps, const ChannelArrays& channels) {
  WithForm<T>(run.silu, channels.has_mean,
              [&]<AffineForm kForm>() HWY_ATTR { NormalizeEach<kForm, T>(run, steps, channels); });
}
void Channels(const GroupRun& run, const RowSteps& steps, const ChannelArrays& channels) {
  if (run.dtype == DType::kBFloat16) return ChannelsOf<BFloat16>(run, steps, channels);
  if (run.dtype == DType::kFloat16) return ChannelsOf<Float16>(run, steps, channels);
  ChannelsOf<float>(run, steps, channels);
}

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
void normalize_channels(const GroupRun& run, const RowSteps& steps, const ChannelArrays& channels) {
  HWY_DYNAMIC_DISPATCH(Channels)(run, steps, channels);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
