// Rows that are read one after another, and how they are fetched ahead of that.
#if defined(QUINCUNX_KERNELS_ATTENTION_ROW_FETCHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_ATTENTION_ROW_FETCHER_INL_H_
#undef QUINCUNX_KERNELS_ATTENTION_ROW_FETCHER_INL_H_
#else
#define QUINCUNX_KERNELS_ATTENTION_ROW_FETCHER_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "quincunx/kernels/attention/attention_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bytes of the cache that are fetched ahead of their use: far ahead into L2, which has more misses in flight than L1,
// and from there into L1. decode_attention_benchmark on Zen 4: 15 % faster than into L1 alone, pages of 16 tokens 30 %.
constexpr int64_t kFarBytes = 8192;
constexpr int64_t kNearBytes = 1024;

// Rows of keys or values that are read one after another, and those that are read next.
template <typename T>
struct Stream {
  const T* const* rows;
  int64_t count;
  const T* const* then;
  int64_t then_count;
  int64_t width;

  // The row that stands `ahead` rows behind row `index`; row `index` itself where there is none.
  HWY_INLINE const T* RowAhead(int64_t index, int64_t ahead) const {
    const int64_t at = index + ahead;
    return at < count ? rows[at] : at - count < then_count ? then[at - count] : rows[index];
  }
};

// Fetches the rows ahead of [begin, end), line after line as the hardware's own prefetcher expects them.
template <typename T>
class Fetcher {
 public:
  HWY_INLINE Fetcher(const Stream<T>& stream, int64_t begin, int64_t end) : stream_(stream), row_(begin), end_(end) {
    const int64_t row_bytes = stream.width * static_cast<int64_t>(sizeof(T));
    far_rows_ = std::max<int64_t>(1, kFarBytes / row_bytes);
    near_rows_ = std::max<int64_t>(1, kNearBytes / row_bytes);
    StartRow();
  }

  HWY_INLINE void Fetch(int lines) {
    for (int line = 0; line < lines && row_ < end_; ++line) {
      constexpr int kToL2 = 2, kToL1 = 3;
      __builtin_prefetch(far_ + column_, 0, kToL2);
      __builtin_prefetch(near_ + column_, 0, kToL1);
      column_ += kLine;
      if (column_ >= stream_.width) {
        ++row_;
        StartRow();
      }
    }
  }

  // As much as `vectors` vectors of elements take.
  template <int kVectors>
  HWY_INLINE void FetchVectors() {
    Fetch(std::max(1, static_cast<int>(kVectors * hn::MaxLanes(TileTag()) / kLine)));
  }

 private:
  HWY_INLINE void StartRow() {
    column_ = 0;
    if (row_ >= end_) return;
    far_ = stream_.RowAhead(row_, far_rows_);
    near_ = stream_.RowAhead(row_, near_rows_);
  }

  static constexpr int64_t kLine = 64 / sizeof(T);
  const Stream<T>& stream_;
  int64_t row_, end_;
  int64_t far_rows_, near_rows_;
  int64_t column_ = 0;
  const T* far_ = nullptr;
  const T* near_ = nullptr;
};

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
