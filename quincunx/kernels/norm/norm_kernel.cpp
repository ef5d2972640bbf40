#include "quincunx/kernels/norm/norm_kernel.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/norm/norm_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convert/float_pair-inl.h"
#include "quincunx/kernels/norm/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;

// What a row's sums become: y = ((x - mean) * scale - correction * scale) * weight + bias.
struct RowScale {
  float mean;
  float correction;
  float scale;
};

// x + residual, written to `total` as T and summed as written.
template <bool kNeedFirst, typename T>
HWY_INLINE Moments AddAndSum(const T* x, const T* residual, int64_t count, float shift, T* total, int64_t ahead) {
  const Tag d;
  const auto join = [](FloatPair<Tag> a, FloatPair<Tag> b)
                        HWY_ATTR { return FloatPair<Tag>{hn::Add(a.a, b.a), hn::Add(a.b, b.b)}; };
  return MomentsOfPairs<kNeedFirst, T>(
      count, shift,
      [=](int64_t i) HWY_ATTR {
        FetchAhead(x + i, 2 * hn::Lanes(d) * sizeof(T), ahead);
        FetchAhead(residual + i, 2 * hn::Lanes(d) * sizeof(T), ahead);
        StorePair(join(LoadPair(d, x + i), LoadPair(d, residual + i)), d, total + i);
        return LoadPair(d, total + i);
      },
      [=](int64_t i, size_t rest) HWY_ATTR {
        StorePairTail(join(LoadPairTail(d, x + i, rest), LoadPairTail(d, residual + i, rest)), d, total + i, rest);
        return LoadPairTail(d, total + i, rest);
      });
}

// The scale of a row about whose `shift` the moments are; x is what is normalised.
template <typename T>
HWY_INLINE RowScale ScaleOfMoments(const NormBlock& block, const T* x, float shift, const Moments& moments) {
  const auto count = static_cast<float>(block.length);
  if (!block.center) return {0, 0, 1 / std::sqrt(moments.second / count + block.eps)};
  const RowMoments centred = CentredMoments(x, block.length, shift, moments);
  return {centred.mean, centred.correction, 1 / std::sqrt(centred.squares / count + block.eps)};
}

template <typename T, bool kCenter>
HWY_INLINE RowScale ScaleOf(const NormBlock& block, int64_t row) {
  const auto* x = static_cast<const T*>(block.x[row]);
  const auto* residual = static_cast<const T*>(block.residual[row]);
  if (residual == nullptr) {
    const float shift = kCenter ? static_cast<float>(x[0]) : 0;
    return ScaleOfMoments(block, x, shift, ShiftedMoments<kCenter>(x, block.length, shift));
  }
  auto* total = static_cast<T*>(block.total[row]);
  const float shift = kCenter ? static_cast<float>(x[0]) + static_cast<float>(residual[0]) : 0;
  const Moments moments = AddAndSum<kCenter>(x, residual, block.length, shift, total, block.ahead);
  return ScaleOfMoments(block, total, shift, moments);
}

// A row that is summed while another is written, in the order of ShiftedMoments.
template <typename T, bool kCenter>
class RowAhead {
 public:
  RowAhead(const T* x, int64_t ahead)
      : x_(x), ahead_(ahead), shift_(kCenter ? static_cast<float>(x[0]) : 0), sums_(shift_) {}
  HWY_INLINE void add(int64_t i, int chains) {
    FetchAhead(x_ + i, 2 * hn::Lanes(Tag()) * sizeof(T), ahead_);
    sums_.add(LoadPair(Tag(), x_ + i), chains);
  }
  HWY_INLINE void add_tail(int64_t i, size_t rest) {
    sums_.template add_first<T>(LoadPairTail(Tag(), x_ + i, rest), rest);
  }
  HWY_INLINE RowScale scale(const NormBlock& block) const { return ScaleOfMoments(block, x_, shift_, sums_.total()); }

 private:
  const T* x_;
  int64_t ahead_;
  float shift_;
  MomentSums<kCenter> sums_;
};
struct NoRowAhead {
  HWY_INLINE void add(int64_t, int) {}
  HWY_INLINE void add_tail(int64_t, size_t) {}
};

template <typename T>
struct RowPointers {
  const T* x;
  T* sum;  // may be null
  T* y;
};

// Row by row: rows side by side, which would share the loads of the parameters, take 1.4 times as long where they lie a
// multiple of 4096 bytes apart.
template <typename T, bool kCenter, bool kWeight, bool kBias, class Ahead>
HWY_INLINE void Normalize(const NormBlock& block, const RowScale& row, const RowPointers<T>& at, Ahead& ahead) {
  const Tag d;
  using Pair = FloatPair<Tag>;
  const auto step = static_cast<int64_t>(2 * hn::Lanes(d));
  const auto m = hn::Set(d, row.mean), c = hn::Set(d, -row.correction * row.scale), s = hn::Set(d, row.scale);
  const auto one = [=](hn::Vec<Tag> v, hn::Vec<Tag> w, hn::Vec<Tag> b) HWY_ATTR {
    v = kCenter ? hn::MulAdd(hn::Sub(v, m), s, c) : hn::Mul(v, s);
    if constexpr (kWeight && kBias) return hn::MulAdd(v, w, b);
    if constexpr (kWeight) return hn::Mul(v, w);
    if constexpr (kBias) return hn::Add(v, b);
    return v;
  };
  const auto both = [&](const Pair& v, const Pair& w, const Pair& b)
                        HWY_ATTR { return Pair{one(v.a, w.a, b.a), one(v.b, w.b, b.b)}; };
  const Pair none = {hn::Zero(d), hn::Zero(d)};
  const auto write = [&](int64_t i) HWY_ATTR {
    const Pair x = LoadPair(d, at.x + i);
    if (at.sum != nullptr) StreamPair(x, d, at.sum + i);
    const Pair y = both(x, kWeight ? LoadPair(d, block.weight + i) : none, kBias ? LoadPair(d, block.bias + i) : none);
    StorePair(y, d, at.y + i, block.stream);
  };
  int64_t i = 0;
  for (; i + 2 * step <= block.length; i += 2 * step) {
    ahead.add(i, 0);
    write(i);
    ahead.add(i + step, 2);
    write(i + step);
  }
  for (; i + step <= block.length; i += step) {
    ahead.add(i, 0);
    write(i);
  }
  const auto rest = static_cast<size_t>(block.length - i);
  if (rest == 0) return;
  ahead.add_tail(i, rest);
  // Interleaved parameters are whole pairs.
  const size_t kept = kPairsAreInterleaved<T> ? static_cast<size_t>(step) : rest;
  const Pair x = LoadPairTail(d, at.x + i, rest);
  if (at.sum != nullptr) StorePairTail(x, d, at.sum + i, rest);
  StorePairTail(both(x, kWeight ? LoadPairTail(d, block.weight + i, kept) : none,
                     kBias ? LoadPairTail(d, block.bias + i, kept) : none),
                d, at.y + i, rest);
}

template <typename T, bool kCenter, class Ahead>
HWY_INLINE void NormalizeRow(const NormBlock& block, const RowScale& row, const RowPointers<T>& at, Ahead& ahead) {
  const bool weight = block.weight != nullptr, bias = block.bias != nullptr;
  if (weight && bias) return Normalize<T, kCenter, true, true>(block, row, at, ahead);
  if (weight) return Normalize<T, kCenter, true, false>(block, row, at, ahead);
  if (bias) return Normalize<T, kCenter, false, true>(block, row, at, ahead);
  Normalize<T, kCenter, false, false>(block, row, at, ahead);
}

// How far ahead rows are summed: the scale of the next one is known by the time that it is written.
constexpr int64_t kAhead = 2;

template <typename T, bool kCenter>
void RowsOf(const NormBlock& block) {
  RowScale scales[NormBlock::kMaxRows];
  const bool plain = block.residual[0] == nullptr;
  const int64_t summed = plain ? std::min(kAhead, block.num_rows) : block.num_rows;
  for (int64_t row = 0; row < summed; ++row) scales[row] = ScaleOf<T, kCenter>(block, row);
  for (int64_t row = 0; row < block.num_rows; ++row) {
    const void* x = plain ? block.x[row] : block.total[row];
    const RowPointers<T> at{static_cast<const T*>(x), static_cast<T*>(block.sum[row]), static_cast<T*>(block.y[row])};
    if (plain && row + kAhead < block.num_rows) {
      RowAhead<T, kCenter> ahead(static_cast<const T*>(block.x[row + kAhead]), block.ahead);
      NormalizeRow<T, kCenter>(block, scales[row], at, ahead);
      scales[row + kAhead] = ahead.scale(block);
    } else {
      NoRowAhead none;
      NormalizeRow<T, kCenter>(block, scales[row], at, none);
    }
  }
}
template <typename T>
void RowsOfType(const NormBlock& block) {
  block.center ? RowsOf<T, true>(block) : RowsOf<T, false>(block);
}

void Rows(const NormBlock& block) {
  if (block.dtype == DType::kBFloat16) return RowsOfType<BFloat16>(block);
  if (block.dtype == DType::kFloat16) return RowsOfType<Float16>(block);
  RowsOfType<float>(block);
}

void Arrange(DType dtype, const float* values, int64_t count, float* arranged) {
  const auto number = static_cast<size_t>(count);
  if (dtype == DType::kBFloat16) return ArrangeForPairs<BFloat16>(Tag(), values, number, arranged);
  ArrangeForPairs<float>(Tag(), values, number, arranged);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(Rows);
HWY_EXPORT(Arrange);

void normalize_block(const NormBlock& block) { HWY_DYNAMIC_DISPATCH(Rows)(block); }

void arrange_parameter(DType dtype, const float* values, int64_t count, float* arranged) {
  HWY_DYNAMIC_DISPATCH(Arrange)(dtype, values, count, arranged);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
