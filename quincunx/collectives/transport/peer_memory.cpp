#include "quincunx/collectives/transport/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

namespace qx::collectives {

bool PeerMemory::can_read() const {
  if (pid_ == getpid()) return true;
  std::byte first;
  return read(0, &first, 1) == 1;
}

size_t PeerMemory::read(int64_t offset, std::byte* destination, size_t size) const {
  const uint64_t address = address_ + static_cast<uint64_t>(offset);
  if (pid_ == getpid()) {  // a rank that is a thread of this process
    std::memcpy(destination, reinterpret_cast<const void*>(address), size);
    return size;
  }
  const iovec here{destination, size};
  const iovec there{reinterpret_cast<void*>(address), size};
  const ssize_t got = process_vm_readv(static_cast<pid_t>(pid_), &here, 1, &there, 1, 0);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

}  // namespace qx::collectives
