// Reads the memory of another process of this host by process_vm_readv: one copy, by the kernel, where a ring in shared
// memory takes two. Works where the system lets one process of a user look into another (ptrace_scope 0).
#pragma once

#include <cstdint>
#include <vector>

#include "quincunx/collectives/transport/link.h"

namespace qx::collectives {

// Bytes of a peer, in order. Never writes. A read that the system refuses moves nothing.
class PeerMemory final : public Link {
 public:
  PeerMemory(int64_t pid, uint64_t address) : pid_(pid), address_(address) {}
  // Whether the first byte can be read.
  bool can_read() const;

  size_t write(std::span<const std::byte>) override { return 0; }
  void flush() override {}
  bool has_unsent() const override { return false; }
  // Up to 64 KiB: what is reduced while it lies in the nearest cache.
  std::span<const std::byte> peek(size_t wanted) override;
  void consume(size_t num_bytes) override;
  size_t read(std::byte* destination, size_t size) override;
  std::string_view name() const override { return "memory of the peer"; }
  // Nothing beyond this many bytes is read ahead.
  void set_ready(int64_t size) { ready_ = size; }

 private:
  int64_t pid_;
  uint64_t address_;
  int64_t position_ = 0;
  int64_t ready_ = 0;
  std::vector<std::byte> ahead_;
  size_t ahead_begin_ = 0, ahead_end_ = 0;
};

}  // namespace qx::collectives
