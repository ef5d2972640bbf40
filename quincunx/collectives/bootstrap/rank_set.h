// Ranks as ranges: what a subtree holds, who is missing. Compact where ranks of a host are neighbours, as they mostly
// are, and never longer on the wire than one bit a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::collectives {

class RankSet {
 public:
  struct Range {
    int begin = 0;
    int end = 0;  // one past the last
    bool operator==(const Range&) const = default;
  };

  RankSet() = default;
  RankSet(std::initializer_list<int> ranks);
  // [begin, end)
  static RankSet range(int begin, int end);

  bool empty() const { return ranges_.empty(); }
  int64_t count() const { return count_; }
  bool contains(int rank) const;
  bool overlaps(const RankSet& other) const;
  // The smallest rank. The set must not be empty.
  int first() const { return ranges_.front().begin; }
  // One past the largest rank; 0 when empty.
  int end() const { return ranges_.empty() ? 0 : ranges_.back().end; }
  std::span<const Range> ranges() const { return ranges_; }

  void insert(int rank);
  void erase(int rank);
  void clear();
  RankSet& operator|=(const RankSet& other);
  RankSet& operator&=(const RankSet& other);
  RankSet& operator-=(const RankSet& other);
  bool operator==(const RankSet&) const = default;

  // "0-3, 7", with "... and 12 more" after `max_ranges` ranges. "none" when empty.
  std::string to_string(size_t max_ranges = 64) const;

  // Appends to `out`: ranges, or one bit a rank where that is shorter.
  void encode(std::vector<std::byte>& out) const;
  // Takes the set off the front of `bytes`. kDataLoss when it is cut off, out of order, or reaches `world_size`.
  static Result<RankSet> decode(std::span<const std::byte>& bytes, int world_size);

 private:
  void append(int begin, int end);

  std::vector<Range> ranges_;  // sorted, apart from each other, none empty
  int64_t count_ = 0;
};

}  // namespace qx::collectives
