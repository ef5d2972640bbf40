#include "quincunx/collectives/transport/peer_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace qx::collectives {
namespace {

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = std::byte(i % 251);
  return bytes;
}

PeerMemory memory_at(pid_t pid, const void* address) { return {pid, reinterpret_cast<uint64_t>(address)}; }

// A process that holds what its parent held when it was forked, until the end of the test.
class Peer {
 public:
  Peer() : pid_(fork()) {
    if (pid_ == 0) {
      while (true) pause();
    }
  }
  ~Peer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(PeerMemory, ReadsAnotherProcessAsFarAsItIsReady) {
  const auto bytes = pattern(200'003);
  const Peer peer;
  PeerMemory memory = memory_at(peer.pid(), bytes.data());
  if (!memory.can_read()) GTEST_SKIP() << "this system lets no process read another";
  std::vector<std::byte> copy(bytes.size());
  EXPECT_EQ(memory.read(copy.data(), copy.size()), 0u) << "nothing is ready";
  memory.set_ready(100'000);
  EXPECT_EQ(memory.read(copy.data(), copy.size()), 100'000u);
  memory.set_ready(200'003);
  EXPECT_EQ(memory.read(copy.data() + 100'000, copy.size()), 100'003u);
  EXPECT_EQ(copy, bytes);
}

TEST(PeerMemory, PeeksAndReadsInOneOrder) {
  const auto bytes = pattern(200'003);
  PeerMemory memory = memory_at(getpid(), bytes.data());
  ASSERT_TRUE(memory.can_read());
  memory.set_ready(static_cast<int64_t>(bytes.size()));
  const auto ahead = memory.peek(4);
  ASSERT_GE(ahead.size(), 1000u);
  EXPECT_TRUE(std::equal(ahead.begin(), ahead.end(), bytes.begin()));
  memory.consume(1000);
  std::vector<std::byte> rest(bytes.size() - 1000);
  size_t taken = 0;
  while (taken < rest.size()) {
    const size_t got = memory.read(rest.data() + taken, rest.size() - taken);
    ASSERT_GT(got, 0u);
    taken += got;
  }
  EXPECT_EQ(std::memcmp(rest.data(), bytes.data() + 1000, rest.size()), 0);
  EXPECT_TRUE(memory.peek(1).empty());
}

TEST(PeerMemory, SaysWhatItCannotRead) {
  const Peer peer;
  EXPECT_FALSE(memory_at(peer.pid(), nullptr).can_read());
  const auto bytes = pattern(16);
  EXPECT_FALSE(memory_at(0x3fffffff, bytes.data()).can_read()) << "no such process";
}

}  // namespace
}  // namespace qx::collectives
