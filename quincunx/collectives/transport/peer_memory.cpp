#include "quincunx/collectives/transport/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace qx::collectives {
namespace {

constexpr size_t kAheadBytes = 64 << 10;

size_t read_process(int64_t pid, uint64_t address, std::byte* destination, size_t size) {
  if (pid == getpid()) {  // a rank that is a thread of this process
    std::memcpy(destination, reinterpret_cast<const void*>(address), size);
    return size;
  }
  const iovec here{destination, size};
  const iovec there{reinterpret_cast<void*>(address), size};
  const ssize_t got = process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

}  // namespace

bool PeerMemory::can_read() const {
  if (pid_ == getpid()) return true;
  std::byte first;
  return read_process(pid_, address_, &first, 1) == 1;
}

std::span<const std::byte> PeerMemory::peek(size_t) {
  if (ahead_begin_ == ahead_end_) {
    ahead_.resize(kAheadBytes);
    const auto wanted = static_cast<size_t>(std::min<int64_t>(ready_ - position_, kAheadBytes));
    ahead_begin_ = 0;
    ahead_end_ =
        wanted == 0 ? 0 : read_process(pid_, address_ + static_cast<uint64_t>(position_), ahead_.data(), wanted);
  }
  return {ahead_.data() + ahead_begin_, ahead_end_ - ahead_begin_};
}

void PeerMemory::consume(size_t num_bytes) {
  ahead_begin_ += num_bytes;
  position_ += static_cast<int64_t>(num_bytes);
}

size_t PeerMemory::read(std::byte* destination, size_t size) {
  size = std::min(size, static_cast<size_t>(std::max<int64_t>(0, ready_ - position_)));
  if (ahead_begin_ != ahead_end_ || size == 0) return Link::read(destination, size);
  const size_t got = read_process(pid_, address_ + static_cast<uint64_t>(position_), destination, size);
  position_ += static_cast<int64_t>(got);
  return got;
}

}  // namespace qx::collectives
