// Orders of f32 rows, for top_k, sort and sampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qx::kernels {

// An element's place in the order and its index, so that sorting numbers sorts elements, stably.
using RankedIndex = uint64_t;
inline int64_t index_of(RankedIndex ranked) { return static_cast<int64_t>(ranked & 0xffffffffu); }

// The rank of a value: ascending, or descending where `largest_first`. NaN counts as larger than every number, -0 as 0.
uint32_t rank_of(float value, bool largest_first);
inline RankedIndex ranked(float value, int64_t index, bool largest_first) {
  return static_cast<RankedIndex>(rank_of(value, largest_first)) << 32 | static_cast<uint64_t>(index);
}

// Sorts in place; items of equal rank have to stand in the order of their indices. `scratch` is resized as needed.
void sort_ranked(std::span<RankedIndex> items, std::vector<RankedIndex>& scratch);

// `best` becomes the first k of the row's elements in order. 0 <= k <= x.size() < 2^31.
void select_first(std::span<const float> x, int64_t k, bool largest_first, std::vector<RankedIndex>& best,
                  std::vector<RankedIndex>& scratch);

// The first position from `begin` on, a multiple of 32 beyond it or x.size(), behind which 32 elements have one that is
// above `bound` (or NaN).
int64_t next_block_above(std::span<const float> x, int64_t begin, float bound);

}  // namespace qx::kernels
