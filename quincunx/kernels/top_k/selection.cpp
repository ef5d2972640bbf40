#include "quincunx/kernels/top_k/selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/top_k/selection.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Blocks in which every element is at most (kAbove) or at least the bound are passed over; NaN is never passed over.
template <bool kAbove>
HWY_INLINE int64_t SkipBlocks(const float* x, int64_t begin, int64_t count, float bound) {
  const hn::CappedTag<float, 32> d;
  constexpr int64_t kBlock = 32;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limit = hn::Set(d, bound);
  int64_t i = begin;
  for (; i + kBlock <= count; i += kBlock) {
    auto passed = hn::Eq(limit, limit);
    for (int64_t k = 0; k < kBlock; k += lanes) {
      const auto v = hn::LoadU(d, x + i + k);
      passed = hn::And(passed, kAbove ? hn::Le(v, limit) : hn::Ge(v, limit));
    }
    if (!hn::AllTrue(d, passed)) return i;
  }
  for (int64_t k = i; k < count; ++k) {
    if (!(kAbove ? x[k] <= bound : x[k] >= bound)) return i;
  }
  return count;
}

int64_t SkipBlocksAtMost(const float* x, int64_t begin, int64_t count, float bound) {
  return SkipBlocks<true>(x, begin, count, bound);
}
int64_t SkipBlocksAtLeast(const float* x, int64_t begin, int64_t count, float bound) {
  return SkipBlocks<false>(x, begin, count, bound);
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(SkipBlocksAtMost);
HWY_EXPORT(SkipBlocksAtLeast);

namespace {

constexpr int64_t kBlock = 32;
// Below this length comparing is faster than counting digits.
constexpr size_t kLeastCounted = 192;
constexpr int kDigits = 4;  // of eight bits: the rank
constexpr size_t kBuckets = 256;

size_t digit_of(RankedIndex item, int digit) { return item >> (32 + 8 * digit) & (kBuckets - 1); }

// Removes all but the first `take` and returns the last of those; the others keep their order, which sorting by digits
// needs.
RankedIndex keep_first(std::vector<RankedIndex>& items, size_t take, std::vector<RankedIndex>& scratch) {
  scratch.assign(items.begin(), items.end());
  const auto last = scratch.begin() + static_cast<std::ptrdiff_t>(take - 1);
  std::nth_element(scratch.begin(), last, scratch.end());
  const RankedIndex worst = *last;
  std::erase_if(items, [worst](RankedIndex item) { return item > worst; });
  return worst;
}

}  // namespace

uint32_t rank_of(float value, bool largest_first) {
  const auto bits = std::bit_cast<uint32_t>(value);
  uint32_t rank = bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
  if (bits << 1 == 0) rank = 0x80000000u;
  if (std::isnan(value)) rank = 0xffffffffu;
  return largest_first ? ~rank : rank;
}

void sort_ranked(std::span<RankedIndex> items, std::vector<RankedIndex>& scratch) {
  if (items.size() < kLeastCounted) return std::sort(items.begin(), items.end());
  std::array<std::array<uint32_t, kBuckets>, kDigits> counts{};
  for (const RankedIndex item : items) {
    for (int digit = 0; digit < kDigits; ++digit) ++counts[static_cast<size_t>(digit)][digit_of(item, digit)];
  }
  if (scratch.size() < items.size()) scratch.resize(items.size());
  std::span<RankedIndex> from = items, to(scratch.data(), items.size());
  for (int digit = 0; digit < kDigits; ++digit) {
    auto& places = counts[static_cast<size_t>(digit)];
    if (places[digit_of(from[0], digit)] == items.size()) continue;  // all alike in this digit
    uint32_t sum = 0;
    for (uint32_t& place : places) sum += std::exchange(place, sum);
    for (const RankedIndex item : from) to[places[digit_of(item, digit)]++] = item;
    std::swap(from, to);
  }
  if (from.data() != items.data()) std::copy(from.begin(), from.end(), items.begin());
}

void select_first(std::span<const float> x, int64_t k, bool largest_first, std::vector<RankedIndex>& best,
                  std::vector<RankedIndex>& scratch) {
  const auto count = static_cast<int64_t>(x.size());
  best.clear();
  if (k == 0) return;
  // So many candidates are gathered before the best k of them give a new bound.
  const auto capacity = static_cast<size_t>(k > count / 4 ? count + kBlock : 2 * k + 2 * kBlock);
  const auto take = static_cast<size_t>(k);
  bool has_bound = false;
  RankedIndex worst = 0;
  for (int64_t i = 0; i < count;) {
    if (has_bound) {
      const float bound = x[static_cast<size_t>(index_of(worst))];
      i = largest_first ? HWY_DYNAMIC_DISPATCH(SkipBlocksAtMost)(x.data(), i, count, bound)
                        : HWY_DYNAMIC_DISPATCH(SkipBlocksAtLeast)(x.data(), i, count, bound);
    }
    const int64_t end = std::min(i + kBlock, count);
    for (; i < end; ++i) {
      const RankedIndex item = ranked(x[static_cast<size_t>(i)], i, largest_first);
      if (!has_bound || item < worst) best.push_back(item);
    }
    if (best.size() + kBlock <= capacity || i == count) continue;
    worst = keep_first(best, take, scratch);
    has_bound = true;
  }
  if (take < best.size() / 2) keep_first(best, take, scratch);
  sort_ranked(best, scratch);
  best.resize(take);
}

int64_t next_block_above(std::span<const float> x, int64_t begin, float bound) {
  return HWY_DYNAMIC_DISPATCH(SkipBlocksAtMost)(x.data(), begin, static_cast<int64_t>(x.size()), bound);
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
