#include "quincunx/tensor/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace qx {
namespace {

using testing::HasSubstr;
using Shape = std::vector<int64_t>;

TEST(Arena, GivesAlignedBlocksThatDoNotOverlap) {
  Arena arena(1 << 20);
  std::vector<std::pair<std::byte*, int64_t>> blocks;
  for (const int64_t size : {0, 1, 63, 64, 65, 1000, 70000, 3, 200000}) {
    std::byte* block = arena.allocate(size).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kStorageAlignmentBytes, 0u);
    std::memset(block, static_cast<int>(blocks.size()), static_cast<size_t>(size));
    blocks.emplace_back(block, size);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (int64_t k = 0; k < blocks[i].second; ++k) ASSERT_EQ(blocks[i].first[k], static_cast<std::byte>(i));
  }
}

TEST(Arena, RemembersItsPeak) {
  Arena arena(1 << 20);
  ASSERT_TRUE(arena.allocate(100).ok());
  EXPECT_EQ(arena.used_bytes(), 128);
  ASSERT_TRUE(arena.allocate(64).ok());
  arena.reset();
  EXPECT_EQ(arena.used_bytes(), 0);
  ASSERT_TRUE(arena.allocate(1).ok());
  EXPECT_EQ(arena.used_bytes(), 64);
  EXPECT_EQ(arena.peak_bytes(), 192);
}

TEST(Arena, UsesTheSameMemoryAgainAfterReset) {
  Arena arena(1 << 20);
  const auto round = [&] {
    std::byte* first = arena.allocate(50000).value();
    std::byte* second = arena.allocate(50000).value();
    arena.reset();
    return std::pair(first, second);
  };
  round();  // grows
  const auto settled = round();
  EXPECT_EQ(round(), settled);
  EXPECT_EQ(settled.second - settled.first, 50048);
}

TEST(Arena, KeepsToItsBudget) {
  Arena arena(256);
  ASSERT_TRUE(arena.allocate(128).ok());
  const auto refused = arena.allocate(129);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("129 bytes do not fit, 128 of the arena's budget of 256"));
  EXPECT_TRUE(arena.allocate(128).ok());
  EXPECT_FALSE(arena.allocate(0).ok());
  EXPECT_EQ(arena.used_bytes(), 256);
  arena.reset();
  EXPECT_TRUE(arena.allocate(256).ok());
  EXPECT_FALSE(Arena(0).allocate(1).ok());
  EXPECT_FALSE(Arena(63).allocate(1).ok());
}

TEST(Arena, RefusesBadSizes) {
  Arena arena(1 << 20);
  EXPECT_EQ(arena.allocate(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(arena.allocate(std::numeric_limits<int64_t>::max()).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(arena.allocate_tensor(DType::kFloat32, Shape{2, -1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_DEATH(Arena(-1), "budget_bytes");
}

TEST(Arena, GivesTensors) {
  Arena arena(1 << 20);
  const TensorView tensor = arena.allocate_tensor(DType::kBFloat16, Shape{3, 50}).value();
  EXPECT_EQ(tensor.to_string(), "bfloat16[3, 50]");
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_EQ(arena.used_bytes(), 320);
}

}  // namespace
}  // namespace qx
