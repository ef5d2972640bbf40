#include "quincunx/collectives/transport/ring_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace qx::collectives {
namespace {

constexpr std::byte kUntouched{0xa5};

std::vector<std::byte> numbered(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

// Copies between all places within a line, and looks at the bytes around.
void expect_copies(Stores stores, size_t size) {
  const std::vector<std::byte> source = numbered(size + 64);
  for (const size_t from : {0, 1, 31}) {
    for (const size_t to : {0, 1, 15, 16, 63}) {
      std::vector<std::byte> destination(size + 192, kUntouched);
      copy_by(stores, destination.data() + 64 + to, source.data() + from, size);
      for (size_t i = 0; i < destination.size(); ++i) {
        const bool is_inside = i >= 64 + to && i < 64 + to + size;
        ASSERT_EQ(destination[i], is_inside ? source[from + i - 64 - to] : kUntouched)
            << "at " << i << ", size " << size << ", from " << from << " to " << to;
      }
    }
  }
}

TEST(RingCopy, BothKindsOfStoresCopyEveryByteAndNoOther) {
  for (const size_t size : {0, 1, 15, 63, 64, 65, 127, 128, 1000, 4096, 70001}) {
    expect_copies(Stores::kOrdinary, size);
    expect_copies(Stores::kStreaming, size);
  }
}

TEST(RingCopy, CopiesWhateverItChooses) {
  const std::vector<std::byte> source = numbered(64 << 10);
  RingCopy copy;
  for (int i = 0; i < 2 * CheaperStores::kLastPause; ++i) {
    std::vector<std::byte> destination(source.size(), kUntouched);
    copy(destination.data(), source.data(), source.size());
    ASSERT_EQ(destination, source) << i;
  }
}

// What copies cost by ordinary and by streaming stores.
struct Costs {
  double ordinary = 1.0, streaming = 1.0;
};

// How many of the copies took streaming stores.
int num_streaming(CheaperStores& stores, const Costs& costs, int num_copies) {
  int count = 0;
  for (int i = 0; i < num_copies; ++i) {
    const bool streams = stores.next() == Stores::kStreaming;
    count += streams;
    stores.record(streams ? costs.streaming : costs.ordinary);
  }
  return count;
}

constexpr int kSettled = 4 * CheaperStores::kLastPause;

TEST(CheaperStores, StaysWithOrdinaryOnesButForTrials) {
  CheaperStores stores;
  EXPECT_EQ(num_streaming(stores, {1.0, 1.6}, CheaperStores::kFirstTrial + 1), 1);
  num_streaming(stores, {1.0, 1.6}, kSettled);
  const int count = num_streaming(stores, {1.0, 1.6}, 10 * CheaperStores::kLastPause);
  EXPECT_GE(count, 9);
  EXPECT_LE(count, 10);
}

TEST(CheaperStores, DoesNotChangeForALittle) {
  CheaperStores stores;
  EXPECT_LE(num_streaming(stores, {1.0, 0.9}, 1000), 8);
}

TEST(CheaperStores, FollowsTheCheaperOnesAndComesBack) {
  CheaperStores stores;
  num_streaming(stores, {10.0, 1.0}, CheaperStores::kFirstTrial + 1);
  EXPECT_EQ(stores.next(), Stores::kStreaming);
  num_streaming(stores, {10.0, 1.0}, kSettled);
  // The process was moved to a core that shares a cache with the reader.
  num_streaming(stores, {1.0, 1.6}, CheaperStores::kLastPause + 1);
  EXPECT_EQ(stores.next(), Stores::kOrdinary);
  EXPECT_LE(num_streaming(stores, {1.0, 1.6}, 200), 5);
}

TEST(CheaperStores, OneInterruptedCopyChangesNothing) {
  CheaperStores stores;
  num_streaming(stores, {1.0, 1.2}, 50);
  EXPECT_EQ(stores.next(), Stores::kOrdinary);
  stores.record(1000.0);
  EXPECT_LE(num_streaming(stores, {1.0, 1.2}, 200), 3);
}

// What became dearer is noticed, however cheap it once was.
TEST(CheaperStores, ForgetsWhatCopiesOnceCost) {
  CheaperStores stores;
  num_streaming(stores, {0.1, 1.0}, kSettled);
  num_streaming(stores, {10.0, 1.0}, CheaperStores::kLastPause + 1);
  EXPECT_EQ(stores.next(), Stores::kStreaming);
}

}  // namespace
}  // namespace qx::collectives
