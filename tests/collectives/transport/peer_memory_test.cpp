#include "quincunx/collectives/transport/peer_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
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

TEST(PeerMemory, CopiesPiecesOfAnotherProcess) {
  const auto bytes = pattern(200'003);
  const Peer peer;
  const PeerMemory memory = memory_at(peer.pid(), bytes.data());
  if (!memory.can_read()) GTEST_SKIP() << "this system lets no process read another";
  std::vector<std::byte> copy(bytes.size());
  EXPECT_EQ(memory.read(100'000, copy.data() + 100'000, 100'003), 100'003u);
  EXPECT_EQ(memory.read(0, copy.data(), 100'000), 100'000u);
  EXPECT_EQ(copy, bytes);
}

TEST(PeerMemory, CopiesPiecesOfAThreadOfThisProcess) {
  const auto bytes = pattern(1003);
  const PeerMemory memory = memory_at(getpid(), bytes.data());
  ASSERT_TRUE(memory.can_read());
  std::vector<std::byte> copy(bytes.size());
  EXPECT_EQ(memory.read(0, copy.data(), 1), 1u);
  EXPECT_EQ(memory.read(1, copy.data() + 1, 1002), 1002u);
  EXPECT_EQ(copy, bytes);
}

TEST(PeerMemory, SaysWhatItCannotRead) {
  const Peer peer;
  EXPECT_FALSE(memory_at(peer.pid(), nullptr).can_read());
  std::byte none;
  EXPECT_EQ(memory_at(peer.pid(), nullptr).read(0, &none, 1), 0u);
  const auto bytes = pattern(16);
  EXPECT_FALSE(memory_at(0x3fffffff, bytes.data()).can_read()) << "no such process";
}

}  // namespace
}  // namespace qx::collectives
