// Reads the memory of another process of this host by process_vm_readv: one copy, by the kernel, where a ring in shared
// memory takes two. Works where the system lets one process of a user look into another (ptrace_scope 0).
#pragma once

#include <cstddef>
#include <cstdint>

namespace qx::collectives {

// Memory of a peer, from an address on.
class PeerMemory {
 public:
  PeerMemory(int64_t pid, uint64_t address) : pid_(pid), address_(address) {}
  // Whether the first byte can be read.
  bool can_read() const;
  // Copies `size` bytes that begin at `offset`; returns how many, 0 where the system refuses.
  size_t read(int64_t offset, std::byte* destination, size_t size) const;

 private:
  int64_t pid_;
  uint64_t address_;
};

}  // namespace qx::collectives
