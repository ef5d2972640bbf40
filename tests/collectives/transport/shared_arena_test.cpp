#include "quincunx/collectives/transport/shared_arena.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace qx::collectives {
namespace {

std::byte* bytes(const std::shared_ptr<void>& buffer) { return static_cast<std::byte*>(buffer.get()); }

TEST(SharedArena, IsOneAProcessAndGoesWithItsLastUser) {
  ASSERT_EQ(SharedArena::existing(), nullptr);
  std::shared_ptr<void> buffer;
  {
    const auto arena = *SharedArena::of_this_process();
    EXPECT_EQ(*SharedArena::of_this_process(), arena);
    buffer = *arena->allocate(100);
  }
  EXPECT_NE(SharedArena::existing(), nullptr) << "a buffer must keep its arena";
  std::memset(buffer.get(), 1, 100);
  buffer.reset();
  EXPECT_EQ(SharedArena::existing(), nullptr);
}

TEST(SharedArena, BuffersAreApartAlignedAndUsedAgain) {
  const auto arena = *SharedArena::of_this_process();
  std::vector<std::shared_ptr<void>> buffers;
  const std::vector<int64_t> sizes = {0, 1, 4095, 4096, 4097, 1 << 20};
  for (const int64_t size : sizes) {
    buffers.push_back(*arena->allocate(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back().get()) % 4096, 0u);
    std::memset(buffers.back().get(), static_cast<int>(buffers.size()), static_cast<size_t>(size));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (int64_t at = 0; at < sizes[i]; at += 1000) EXPECT_EQ(bytes(buffers[i])[at], std::byte(i + 1));
  }
  const void* first = buffers[1].get();
  buffers[1].reset();
  EXPECT_EQ(arena->allocate(10)->get(), first);
  // Freed in any order, the gaps grow together again.
  const void* lowest = buffers[0].get();
  for (const size_t i : {3u, 0u, 5u, 2u, 4u}) buffers[i].reset();
  EXPECT_EQ(arena->allocate(2 << 20)->get(), lowest);
}

TEST(SharedArena, TellsWhatLiesInIt) {
  const auto arena = *SharedArena::of_this_process();
  const auto buffer = *arena->allocate(8192);
  EXPECT_TRUE(arena->offset_of(buffer.get(), 8192).has_value());
  EXPECT_EQ(*arena->offset_of(bytes(buffer) + 5, 1), *arena->offset_of(buffer.get(), 1) + 5);
  const int ordinary = 0;
  EXPECT_FALSE(arena->offset_of(&ordinary, 4).has_value());
  EXPECT_FALSE(arena->offset_of(arena->base(), 1).has_value()) << "the header is nobody's buffer";
  EXPECT_FALSE(arena->offset_of(buffer.get(), arena->address().size_bytes).has_value());
}

TEST(SharedArena, RefusesMoreThanTheMachineHas) {
  const auto arena = *SharedArena::of_this_process();
  const auto refused = arena->allocate(int64_t{1} << 47);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("140737488355328 bytes"), std::string::npos);
}

TEST(SharedArena, AnotherProcessReadsItInPlace) {
  const auto arena = *SharedArena::of_this_process();
  const auto buffer = *arena->allocate(1 << 20);
  std::memset(buffer.get(), 7, 1 << 20);
  const ArenaAddress address = arena->address();
  const int64_t offset = *arena->offset_of(buffer.get(), 1 << 20);
  const pid_t child = fork();
  if (child == 0) {
    if (SharedArena::existing() != nullptr) _exit(1);  // the parent's
    auto view = ArenaView::open(address);
    if (!view.ok()) _exit(2);
    const std::byte* data = (*view)->at(offset, 1 << 20);
    if (data == nullptr || data == bytes(buffer) || data[(1 << 20) - 1] != std::byte{7}) _exit(3);
    const auto own = SharedArena::of_this_process();
    _exit(own.ok() && (*own)->address().nonce != address.nonce ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(ArenaView, OpensNothingButWhatWasPromised) {
  const auto arena = *SharedArena::of_this_process();
  ArenaAddress address = arena->address();
  EXPECT_TRUE(ArenaView::open(address).ok());
  ++address.nonce;
  EXPECT_FALSE(ArenaView::open(address).ok()) << "another number in the file";
  address = arena->address();
  address.size_bytes += 4096;
  EXPECT_FALSE(ArenaView::open(address).ok()) << "a larger file than there is would be a bus error";
  address = arena->address();
  address.fd = 0;
  EXPECT_FALSE(ArenaView::open(address).ok()) << "another file";
  EXPECT_FALSE(ArenaView::open({}).ok());
}

TEST(ArenaView, ChecksEveryRange) {
  const auto arena = *SharedArena::of_this_process();
  const auto view = ArenaView::open(arena->address()).value();
  const int64_t size = arena->address().size_bytes;
  EXPECT_EQ(view->at(4096, 100), arena->base() + 4096);
  EXPECT_EQ(view->at(0, 1), nullptr);
  EXPECT_EQ(view->at(-8, 4), nullptr);
  EXPECT_EQ(view->at(4096, -1), nullptr);
  EXPECT_EQ(view->at(size - 10, 11), nullptr);
  EXPECT_EQ(view->at(4096, INT64_MAX), nullptr);
  EXPECT_EQ(view->at(INT64_MAX, 4096), nullptr);
}

}  // namespace
}  // namespace qx::collectives
