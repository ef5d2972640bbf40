#include "quincunx/collectives/bootstrap/rank_set.h"

#include <algorithm>

#include "quincunx/collectives/bootstrap/wire_bytes.h"

namespace qx::collectives {
namespace {

enum class Form : uint8_t { kRanges = 0, kBits = 1 };

bool ends_before(const RankSet::Range& range, int rank) { return range.end <= rank; }

Status bad(const std::string& text) { return data_loss("rank set: " + text); }

Result<RankSet> decode_ranges(std::span<const std::byte>& bytes, int world_size) {
  uint64_t count = 0;
  // A range takes two bytes at least: no count makes us reserve more than was sent.
  if (!take_varint(bytes, count) || count > bytes.size() / 2) return bad("the ranges are cut off");
  RankSet set;
  int64_t end = -1;  // so that ranges that touch are refused: one set has one form
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t gap = 0;
    uint64_t length = 0;
    if (!take_varint(bytes, gap) || !take_varint(bytes, length)) return bad("the ranges are cut off");
    const auto limit = static_cast<uint64_t>(world_size);
    if (gap > limit || length >= limit) return bad("a range is longer than the world size of " + std::to_string(limit));
    const int64_t begin = end + 1 + static_cast<int64_t>(gap);
    end = begin + 1 + static_cast<int64_t>(length);
    if (end > world_size) return bad("rank " + std::to_string(end - 1) + " of " + std::to_string(world_size));
    set |= RankSet::range(static_cast<int>(begin), static_cast<int>(end));
  }
  return set;
}

Result<RankSet> decode_bits(std::span<const std::byte>& bytes, int world_size) {
  uint64_t first = 0;
  uint64_t count = 0;
  if (!take_varint(bytes, first) || !take_varint(bytes, count) || count > bytes.size()) return bad("bits are cut off");
  const auto limit = static_cast<uint64_t>(world_size);
  if (first > limit || count > limit) return bad("more bits than the world size of " + std::to_string(limit));
  RankSet set;
  for (uint64_t i = 0; i < count * 8; ++i) {
    if ((bytes[i / 8] >> (i % 8) & std::byte{1}) == std::byte{0}) continue;
    const uint64_t rank = first * 8 + i;
    if (rank >= limit) return bad("rank " + std::to_string(rank) + " of " + std::to_string(limit));
    set.insert(static_cast<int>(rank));
  }
  bytes = bytes.subspan(count);
  return set;
}

}  // namespace

RankSet::RankSet(std::initializer_list<int> ranks) {
  for (const int rank : ranks) insert(rank);
}

RankSet RankSet::range(int begin, int end) {
  RankSet set;
  if (begin < end) set.append(begin, end);
  return set;
}

void RankSet::append(int begin, int end) {
  if (!ranges_.empty() && begin <= ranges_.back().end) {
    if (end <= ranges_.back().end) return;
    count_ += end - ranges_.back().end;
    ranges_.back().end = end;
    return;
  }
  count_ += end - begin;
  ranges_.push_back({begin, end});
}

bool RankSet::contains(int rank) const {
  const auto found = std::lower_bound(ranges_.begin(), ranges_.end(), rank, ends_before);
  return found != ranges_.end() && found->begin <= rank;
}

bool RankSet::overlaps(const RankSet& other) const {
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    if (a->begin < b->end && b->begin < a->end) return true;
    if (a->end < b->end)
      ++a;
    else
      ++b;
  }
  return false;
}

void RankSet::insert(int rank) {
  const auto at = std::lower_bound(ranges_.begin(), ranges_.end(), rank, ends_before);
  if (at != ranges_.end() && at->begin <= rank) return;
  ++count_;
  const bool joins_left = at != ranges_.begin() && std::prev(at)->end == rank;
  const bool joins_right = at != ranges_.end() && at->begin == rank + 1;
  if (joins_left && joins_right) {
    std::prev(at)->end = at->end;
    ranges_.erase(at);
  } else if (joins_left) {
    std::prev(at)->end = rank + 1;
  } else if (joins_right) {
    at->begin = rank;
  } else {
    ranges_.insert(at, {rank, rank + 1});
  }
}

void RankSet::erase(int rank) { *this -= range(rank, rank + 1); }

void RankSet::clear() {
  ranges_.clear();
  count_ = 0;
}

RankSet& RankSet::operator|=(const RankSet& other) {
  if (other.empty()) return *this;
  if (other.first() >= end()) {
    for (const Range& range : other.ranges_) append(range.begin, range.end);
    return *this;
  }
  if (other.count_ == 1) {
    insert(other.first());
    return *this;
  }
  RankSet sum;
  sum.ranges_.reserve(ranges_.size() + other.ranges_.size());
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() || b != other.ranges_.end()) {
    const bool take_a = b == other.ranges_.end() || (a != ranges_.end() && a->begin < b->begin);
    const Range& next = take_a ? *a++ : *b++;
    sum.append(next.begin, next.end);
  }
  return *this = std::move(sum);
}

RankSet& RankSet::operator&=(const RankSet& other) {
  RankSet common;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const int begin = std::max(a->begin, b->begin);
    const int end = std::min(a->end, b->end);
    if (begin < end) common.append(begin, end);
    if (a->end < b->end)
      ++a;
    else
      ++b;
  }
  return *this = std::move(common);
}

RankSet& RankSet::operator-=(const RankSet& other) {
  if (!overlaps(other)) return *this;
  RankSet rest;
  auto b = other.ranges_.begin();
  for (const Range& range : ranges_) {
    int begin = range.begin;
    while (b != other.ranges_.end() && b->end <= begin) ++b;
    for (auto cut = b; cut != other.ranges_.end() && cut->begin < range.end; ++cut) {
      if (begin < cut->begin) rest.append(begin, cut->begin);
      begin = std::max(begin, cut->end);
    }
    if (begin < range.end) rest.append(begin, range.end);
  }
  return *this = std::move(rest);
}

std::string RankSet::to_string(size_t max_ranges) const {
  if (empty()) return "none";
  std::string text;
  int64_t told = 0;
  for (size_t i = 0; i < std::min(max_ranges, ranges_.size()); ++i) {
    const Range& range = ranges_[i];
    text += (text.empty() ? "" : ", ") + std::to_string(range.begin);
    if (range.end - range.begin > 1) text += "-" + std::to_string(range.end - 1);
    told += range.end - range.begin;
  }
  return told == count_ ? text : text + " and " + std::to_string(count_ - told) + " more";
}

void RankSet::encode(std::vector<std::byte>& out) const {
  const size_t start = out.size();
  put_byte(out, static_cast<uint8_t>(Form::kRanges));
  put_varint(out, ranges_.size());
  int64_t previous_end = -1;
  for (const Range& range : ranges_) {
    put_varint(out, static_cast<uint64_t>(range.begin - previous_end - 1));
    put_varint(out, static_cast<uint64_t>(range.end - range.begin - 1));
    previous_end = range.end;
  }
  if (empty()) return;
  const size_t first = static_cast<size_t>(this->first()) / 8;
  const size_t num_bytes = (static_cast<size_t>(end()) + 7) / 8 - first;
  constexpr size_t kBitsHeader = 7;  // form and two numbers below 2^21
  if (num_bytes + kBitsHeader >= out.size() - start) return;
  out.resize(start);
  put_byte(out, static_cast<uint8_t>(Form::kBits));
  put_varint(out, first);
  put_varint(out, num_bytes);
  const size_t bits = out.size();
  out.resize(bits + num_bytes);
  for (const Range& range : ranges_) {
    for (auto rank = static_cast<size_t>(range.begin); rank < static_cast<size_t>(range.end); ++rank) {
      out[bits + rank / 8 - first] |= std::byte{1} << (rank % 8);
    }
  }
}

Result<RankSet> RankSet::decode(std::span<const std::byte>& bytes, int world_size) {
  uint8_t form = 0;
  if (!take_byte(bytes, form)) return bad("there is none");
  if (form == static_cast<uint8_t>(Form::kRanges)) return decode_ranges(bytes, world_size);
  if (form == static_cast<uint8_t>(Form::kBits)) return decode_bits(bytes, world_size);
  return bad("form " + std::to_string(form));
}

}  // namespace qx::collectives
