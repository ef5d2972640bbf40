#include "quincunx/kernels/softmax/softmax_kernel.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/softmax/softmax_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/softmax/softmax_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
using Pair = FloatPair<Tag>;

HWY_INLINE int64_t PairLength() { return static_cast<int64_t>(2 * hn::Lanes(Tag())); }

// A pair of terms: those of f32 may stand in the result's row, which ends with it.
template <typename T>
HWY_INLINE Pair LoadTerms(const float* terms, int64_t i, int64_t count) {
  const Tag d;
  const int64_t rest = count - i;
  if (kPairsAreInterleaved<T> || rest >= PairLength()) return LoadPair(d, terms + i);
  return LoadPairTail(d, terms + i, static_cast<size_t>(rest));
}

HWY_INLINE float* TermsOf(const SoftmaxRows& rows, int64_t r) {
  return rows.terms != nullptr ? rows.terms + r * padded_width(rows.count) : static_cast<float*>(rows.y[r]);
}

// What is subtracted from a row before exp, and the sum of its terms.
struct RowSum {
  float shift;
  float sum;
};

// Stored terms of half precision may be exponentials of differences to the largest of the first elements only: they err
// by 2^-25 of the difference, which the result's own rounding hides where no term is larger than this. Logarithms near
// 0 would be what two such differences leave of each other.
constexpr int64_t kFirst = 128;
constexpr float kLargestTerm = 0x1p24f;

template <bool kStore, typename T>
inline constexpr bool kReadsOnce = kStore && sizeof(T) < sizeof(float);

// Where it reads a row once for its sum, `shift` is the largest of the first elements, else of all.
template <bool kStore, typename T>
HWY_INLINE RowSum SumOfRow(const SoftmaxRows& rows, int64_t r, float shift, float* terms) {
  const T* x = static_cast<const T*>(rows.x[r]);
  if constexpr (kReadsOnce<kStore, T>) {
    constexpr SumForm kAny{kStore, kStore, true};
    const float sum = shift < -std::numeric_limits<float>::max()
                          ? std::numeric_limits<float>::infinity()
                          : SumOfExp<kAny>(x, rows.count, shift, terms, rows.ahead);
    if (HWY_LIKELY(sum < kLargestTerm)) return {shift, sum};
    shift = LargestOf(x, rows.count);
  }
  constexpr SumForm kForm{kStore, kStore, false};
  return {shift, SumOfExp<kForm>(x, rows.count, shift, terms, rows.ahead)};
}

template <bool kStore, typename T>
HWY_INLINE void SumRows(const SoftmaxRows& rows, RowSum* sums) {
  const int64_t seen = kReadsOnce<kStore, T> ? std::min(kFirst, rows.count) : rows.count;
  for (int64_t r = 0; r < rows.num_rows; ++r) sums[r].shift = LargestOf(static_cast<const T*>(rows.x[r]), seen);
  for (int64_t r = 0; r < rows.num_rows; ++r) {
    sums[r] = SumOfRow<kStore, T>(rows, r, sums[r].shift, kStore ? TermsOf(rows, r) : nullptr);
  }
}

template <typename T>
void RowsOf(const SoftmaxRows& rows) {
  const Tag d;
  RowSum sums[SoftmaxRows::kMaxRows];
  SumRows<true, T>(rows, sums);
  for (int64_t r = 0; r < rows.num_rows; ++r) {
    const Vector scale = hn::Set(d, 1 / sums[r].sum);
    for (int64_t i = 0; i < rows.count; i += PairLength()) {
      const Pair pair = LoadTerms<T>(TermsOf(rows, r), i, rows.count);
      const Pair result = {hn::Mul(pair.a, scale), hn::Mul(pair.b, scale)};
      StorePairUpTo(result, d, static_cast<T*>(rows.y[r]), i, rows.count, rows.stream);
    }
  }
}

template <typename T>
void LogRowsOf(const SoftmaxRows& rows) {
  const Tag d;
  RowSum sums[SoftmaxRows::kMaxRows];
  SumRows<false, T>(rows, sums);
  for (int64_t r = 0; r < rows.num_rows; ++r) {
    const Vector offset = hn::Set(d, sums[r].shift), log_sum = Log(d, hn::Set(d, sums[r].sum));
    for (int64_t i = 0; i < rows.count; i += PairLength()) {
      const Pair pair = LoadPairUpTo(d, static_cast<const T*>(rows.x[r]), i, rows.count);
      const Pair result = {hn::Sub(hn::Sub(pair.a, offset), log_sum), hn::Sub(hn::Sub(pair.b, offset), log_sum)};
      StorePairUpTo(result, d, static_cast<T*>(rows.y[r]), i, rows.count, rows.stream);
    }
  }
}

// Rows whose terms are summed before they join the total: a chain of all rows would round as often as there are rows.
constexpr int64_t kRowsOfPartialSum = 32;

// One maximum and one sum a column, in the order of pairs.
struct ColumnSums {
  float* largest;
  float* sum;
  float* partial;
};

// The terms of one row join `partial`.
template <bool kStore, typename T>
HWY_INLINE void AddExpRow(const T* x, int64_t width, const ColumnSums& sums, float* terms, int64_t ahead) {
  const Tag d;
  constexpr bool kRough = kStore && HasRoughMath<T>(Tag());
  const auto less = [](Pair a, Pair b) HWY_ATTR { return Pair{hn::Sub(a.a, b.a), hn::Sub(a.b, b.b)}; };
  const auto take = [&](Pair e, int64_t c) HWY_ATTR {
    const Pair partial = LoadPair(d, sums.partial + c);
    StorePair({hn::Add(partial.a, e.a), hn::Add(partial.b, e.b)}, d, sums.partial + c);
    if constexpr (!kStore) return;
    // Terms of f32 may stand in the result's row.
    const bool whole = kPairsAreInterleaved<T> || width - c >= PairLength();
    whole ? StorePair(e, d, terms + c) : StorePairTail(e, d, terms + c, static_cast<size_t>(width - c));
  };
  int64_t c = 0;
  for (; c + 2 * PairLength() <= width; c += 2 * PairLength()) {
    const int64_t next = c + PairLength();
    FetchAhead(x + c, static_cast<size_t>(2 * PairLength()) * sizeof(T), ahead);
    Pair first = less(LoadPair(d, x + c), LoadPair(d, sums.largest + c));
    Pair second = less(LoadPair(d, x + next), LoadPair(d, sums.largest + next));
    ExpOfDifferences<kRough, false>(d, first, second);
    take(first, c);
    take(second, next);
  }
  for (; c < width; c += PairLength()) {
    const Pair pair = less(LoadPairUpTo(d, x, c, width), LoadPair(d, sums.largest + c));
    take({ExpOfDifference<kRough>(d, pair.a), ExpOfDifference<kRough>(d, pair.b)}, c);
  }
}

template <typename T>
HWY_INLINE void LargestOfColumns(const SoftmaxPanel& panel, const ColumnSums& sums) {
  const Tag d;
  std::fill_n(sums.largest, padded_width(panel.width), -std::numeric_limits<float>::infinity());
  for (int64_t r = 0; r < panel.rows; ++r) {
    const T* x = static_cast<const T*>(panel.x) + r * panel.x_stride;
    for (int64_t c = 0; c < panel.width; c += PairLength()) {
      const Pair pair = LoadPairUpTo(d, x, c, panel.width), largest = LoadPair(d, sums.largest + c);
      StorePair({hn::Max(pair.a, largest.a), hn::Max(pair.b, largest.b)}, d, sums.largest + c);
    }
  }
}

// Row after row, as they lie in memory.
template <bool kStore, typename T>
HWY_INLINE void SumColumns(const SoftmaxPanel& panel, const ColumnSums& sums, float* terms, int64_t terms_stride) {
  const Tag d;
  std::fill_n(sums.sum, 2 * padded_width(panel.width), 0.0f);
  for (int64_t r = 0; r < panel.rows; ++r) {
    const T* x = static_cast<const T*>(panel.x) + r * panel.x_stride;
    AddExpRow<kStore>(x, panel.width, sums, kStore ? terms + r * terms_stride : nullptr, panel.ahead);
    if ((r + 1) % kRowsOfPartialSum != 0 && r + 1 != panel.rows) continue;
    for (int64_t c = 0; c < panel.width; c += PairLength()) {
      const Pair sum = LoadPair(d, sums.sum + c), partial = LoadPair(d, sums.partial + c);
      StorePair({hn::Add(sum.a, partial.a), hn::Add(sum.b, partial.b)}, d, sums.sum + c);
      StorePair({hn::Zero(d), hn::Zero(d)}, d, sums.partial + c);
    }
  }
}

ColumnSums SumsIn(const SoftmaxPanel& panel) {
  const int64_t width = padded_width(panel.width);
  return {panel.work, panel.work + width, panel.work + 2 * width};
}

template <typename T>
void PanelOf(const SoftmaxPanel& panel) {
  const Tag d;
  const ColumnSums sums = SumsIn(panel);
  float* terms = panel.terms != nullptr ? panel.terms : static_cast<float*>(panel.y);
  const int64_t stride = panel.terms != nullptr ? padded_width(panel.width) : panel.y_stride;
  LargestOfColumns<T>(panel, sums);
  SumColumns<true, T>(panel, sums, terms, stride);
  for (int64_t c = 0; c < panel.width; c += PairLength()) {
    const Pair sum = LoadPair(d, sums.sum + c);
    const Vector one = hn::Set(d, 1.0f);
    StorePair({hn::Div(one, sum.a), hn::Div(one, sum.b)}, d, sums.sum + c);
  }
  for (int64_t r = 0; r < panel.rows; ++r) {
    T* y = static_cast<T*>(panel.y) + r * panel.y_stride;
    for (int64_t c = 0; c < panel.width; c += PairLength()) {
      const Pair pair = LoadTerms<T>(terms + r * stride, c, panel.width), scale = LoadPair(d, sums.sum + c);
      StorePairUpTo({hn::Mul(pair.a, scale.a), hn::Mul(pair.b, scale.b)}, d, y, c, panel.width, panel.stream);
    }
  }
}

template <typename T>
void LogPanelOf(const SoftmaxPanel& panel) {
  const Tag d;
  const ColumnSums sums = SumsIn(panel);
  LargestOfColumns<T>(panel, sums);
  SumColumns<false, T>(panel, sums, nullptr, 0);
  for (int64_t c = 0; c < panel.width; c += PairLength()) {
    const Pair sum = LoadPair(d, sums.sum + c);
    StorePair({Log(d, sum.a), Log(d, sum.b)}, d, sums.sum + c);
  }
  const auto shifted = [](Vector x, Vector largest, Vector log_sum)
                           HWY_ATTR { return hn::Sub(hn::Sub(x, largest), log_sum); };
  for (int64_t r = 0; r < panel.rows; ++r) {
    const T* x = static_cast<const T*>(panel.x) + r * panel.x_stride;
    T* y = static_cast<T*>(panel.y) + r * panel.y_stride;
    for (int64_t c = 0; c < panel.width; c += PairLength()) {
      const Pair pair = LoadPairUpTo(d, x, c, panel.width);
      const Pair largest = LoadPair(d, sums.largest + c), log_sum = LoadPair(d, sums.sum + c);
      const Pair result = {shifted(pair.a, largest.a, log_sum.a), shifted(pair.b, largest.b, log_sum.b)};
      StorePairUpTo(result, d, y, c, panel.width, panel.stream);
    }
  }
}

#define QX_BY_DTYPE(name, Argument)                                              \
  void name(const Argument& argument) {                                          \
    if (argument.dtype == DType::kBFloat16) return name##Of<BFloat16>(argument); \
    if (argument.dtype == DType::kFloat16) return name##Of<Float16>(argument);   \
    name##Of<float>(argument);                                                   \
  }
QX_BY_DTYPE(Rows, SoftmaxRows)
QX_BY_DTYPE(LogRows, SoftmaxRows)
QX_BY_DTYPE(Panel, SoftmaxPanel)
QX_BY_DTYPE(LogPanel, SoftmaxPanel)
#undef QX_BY_DTYPE

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(Rows);
HWY_EXPORT(LogRows);
HWY_EXPORT(Panel);
HWY_EXPORT(LogPanel);

void softmax_rows(const SoftmaxRows& rows) { HWY_DYNAMIC_DISPATCH(Rows)(rows); }
void log_softmax_rows(const SoftmaxRows& rows) { HWY_DYNAMIC_DISPATCH(LogRows)(rows); }
void softmax_panel(const SoftmaxPanel& panel) { HWY_DYNAMIC_DISPATCH(Panel)(panel); }
void log_softmax_panel(const SoftmaxPanel& panel) { HWY_DYNAMIC_DISPATCH(LogPanel)(panel); }

}  // namespace qx::kernels
#endif  // HWY_ONCE
