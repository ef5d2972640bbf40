#include "quincunx/collectives/bootstrap/rank_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "quincunx/collectives/bootstrap/wire_bytes.h"

namespace qx::collectives {
namespace {

using Reference = std::set<int>;

Reference members(const RankSet& set) {
  Reference ranks;
  int previous_end = -1;
  for (const RankSet::Range& range : set.ranges()) {
    EXPECT_LT(previous_end, range.begin) << "ranges that touch are one";
    EXPECT_LT(range.begin, range.end);
    for (int rank = range.begin; rank < range.end; ++rank) ranks.insert(rank);
    previous_end = range.end;
  }
  EXPECT_EQ(set.count(), static_cast<int64_t>(ranks.size()));
  return ranks;
}

struct Pair {
  RankSet set;
  Reference reference;
};

Pair random_pair(std::mt19937& random, int world_size) {
  Pair pair;
  const int num_runs = static_cast<int>(random() % 12);
  for (int i = 0; i < num_runs; ++i) {
    const int begin = static_cast<int>(random() % static_cast<unsigned>(world_size));
    const int end = std::min(world_size, begin + 1 + static_cast<int>(random() % 9));
    pair.set |= RankSet::range(begin, end);
    for (int rank = begin; rank < end; ++rank) pair.reference.insert(rank);
  }
  return pair;
}

Result<RankSet> round_trip(const RankSet& set, int world_size, size_t* size = nullptr) {
  std::vector<std::byte> bytes;
  set.encode(bytes);
  if (size != nullptr) *size = bytes.size();
  bytes.push_back(std::byte{0x5a});
  std::span<const std::byte> rest = bytes;
  auto decoded = RankSet::decode(rest, world_size);
  EXPECT_EQ(rest.size(), 1u) << "takes its own bytes and no more";
  return decoded;
}

TEST(RankSet, AgreesWithASetOfNumbers) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const int world_size = 1 + static_cast<int>(random() % 90);
    const Pair a = random_pair(random, world_size);
    const Pair b = random_pair(random, world_size);
    EXPECT_EQ(members(a.set), a.reference);
    Reference both, common, rest;
    for (int rank = 0; rank < world_size; ++rank) {
      const bool in_a = a.reference.contains(rank);
      const bool in_b = b.reference.contains(rank);
      EXPECT_EQ(a.set.contains(rank), in_a);
      if (in_a || in_b) both.insert(rank);
      if (in_a && in_b) common.insert(rank);
      if (in_a && !in_b) rest.insert(rank);
    }
    RankSet sum = a.set, product = a.set, difference = a.set;
    EXPECT_EQ(members(sum |= b.set), both);
    EXPECT_EQ(members(product &= b.set), common);
    EXPECT_EQ(members(difference -= b.set), rest);
    EXPECT_EQ(a.set.overlaps(b.set), !common.empty());
    const auto decoded = round_trip(sum, world_size);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, sum);
  }
}

TEST(RankSet, InsertsAndErasesSingleRanks) {
  std::mt19937 random(4);
  RankSet set;
  Reference reference;
  for (int step = 0; step < 3000; ++step) {
    const int rank = static_cast<int>(random() % 60);
    if (random() % 2 == 0) {
      set.insert(rank);
      reference.insert(rank);
    } else {
      set.erase(rank);
      reference.erase(rank);
    }
    ASSERT_EQ(members(set), reference);
  }
}

TEST(RankSet, IsNeverMuchLongerThanOneBitARank) {
  RankSet every_other;
  for (int rank = 0; rank < 4096; rank += 2) every_other.insert(rank);
  size_t size = 0;
  EXPECT_EQ(*round_trip(every_other, 4096, &size), every_other);
  EXPECT_LE(size, 4096u / 8 + 8);
  EXPECT_EQ(*round_trip(RankSet::range(0, 100000), 100000, &size), RankSet::range(0, 100000));
  EXPECT_LE(size, 8u) << "a whole job is one range";
  EXPECT_EQ(*round_trip({}, 1, &size), RankSet());
}

TEST(RankSet, IsWrittenForPeople) {
  EXPECT_EQ(RankSet().to_string(), "none");
  EXPECT_EQ((RankSet{7, 0, 1, 2, 3}).to_string(), "0-3, 7");
  EXPECT_EQ((RankSet{0, 2, 4, 6}).to_string(2), "0, 2 and 2 more");
}

TEST(RankSet, RefusesWhatIsOutOfRangeOrCutOff) {
  const auto code_of = [](const std::vector<std::byte>& bytes, int world_size) {
    std::span<const std::byte> rest = bytes;
    return RankSet::decode(rest, world_size).status().code();
  };
  std::vector<std::byte> bytes;
  RankSet::range(3, 9).encode(bytes);
  EXPECT_EQ(code_of(bytes, 8), StatusCode::kDataLoss) << "rank 8 of 8";
  EXPECT_EQ(code_of(bytes, 9), StatusCode::kOk);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(code_of({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}, 9), StatusCode::kDataLoss);
  }
  std::vector<std::byte> huge;
  put_byte(huge, 0);
  put_varint(huge, uint64_t{1} << 60);  // ranges that are not there
  EXPECT_EQ(code_of(huge, 100), StatusCode::kDataLoss);
  std::vector<std::byte> bits;
  put_byte(bits, 1);
  put_varint(bits, 0);
  put_varint(bits, 2);
  put_byte(bits, 0);
  put_byte(bits, 0x80);
  EXPECT_EQ(code_of(bits, 15), StatusCode::kDataLoss) << "rank 15 of 15";
  EXPECT_EQ(code_of(bits, 16), StatusCode::kOk);
  EXPECT_EQ(code_of({std::byte{9}}, 16), StatusCode::kDataLoss) << "there is no form 9";
}

TEST(RankSet, SurvivesAnyBytes) {
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(random() % 12);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 7 == 0 ? random() : random() % 4);
    std::span<const std::byte> rest = bytes;
    const auto decoded = RankSet::decode(rest, 40);
    if (!decoded.ok()) continue;
    const Reference ranks = members(*decoded);
    if (!ranks.empty()) {
      EXPECT_LT(*ranks.rbegin(), 40);
    }
  }
}

}  // namespace
}  // namespace qx::collectives
