#include "quincunx/lite/plan/arena_layout.h"

#include <gtest/gtest.h>

#include <random>

namespace qx::lite {
namespace {

TEST(ArenaLayout, SharesTheMemoryOfBuffersThatNeverMeet) {
  const ArenaLayout layout = lay_out_arena({{64, 0, 1}, {64, 2, 3}, {64, 1, 2}}).value();
  EXPECT_EQ(layout.size_bytes, 128);
  EXPECT_EQ(layout.offsets[0], layout.offsets[1]);
  EXPECT_NE(layout.offsets[0], layout.offsets[2]);
}

TEST(ArenaLayout, FillsTheGapUnderALargerBuffer) {
  // The big one and both small ones: the small ones lie side by side where the big one lay.
  const ArenaLayout layout = lay_out_arena({{1000, 0, 1}, {100, 2, 3}, {100, 2, 3}}).value();
  EXPECT_EQ(layout.size_bytes, 1024);
}

TEST(ArenaLayout, NeverOverlapsWhatLivesAtTheSameTime) {
  std::mt19937 generator(7);
  std::uniform_int_distribution<int64_t> size(0, 5000), step(0, 60), length(0, 9);
  std::vector<BufferLifetime> buffers;
  for (int i = 0; i < 200; ++i) {
    const int64_t first = step(generator);
    buffers.push_back({size(generator), first, first + length(generator)});
  }
  const ArenaLayout layout = lay_out_arena(buffers).value();
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(layout.offsets[i] % 64, 0);
    EXPECT_LE(layout.offsets[i] + buffers[i].size_bytes, layout.size_bytes);
    for (size_t j = 0; j < i; ++j) {
      if (buffers[i].first > buffers[j].last || buffers[j].first > buffers[i].last) continue;
      EXPECT_TRUE(layout.offsets[i] + buffers[i].size_bytes <= layout.offsets[j] ||
                  layout.offsets[j] + buffers[j].size_bytes <= layout.offsets[i])
          << i << " and " << j;
    }
  }
}

TEST(ArenaLayout, TakesNothingForNothing) {
  EXPECT_EQ(lay_out_arena({}).value().size_bytes, 0);
  EXPECT_EQ(lay_out_arena({{0, 0, 5}}).value().size_bytes, 0);
}

TEST(ArenaLayout, RefusesSizesWhoseSumOverflows) {
  const int64_t huge = int64_t{1} << 60;
  EXPECT_EQ(lay_out_arena({{huge + 1, 0, 1}}).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(lay_out_arena(std::vector<BufferLifetime>(9, {huge, 0, 1})).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace qx::lite
