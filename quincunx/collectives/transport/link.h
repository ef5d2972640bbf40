// A byte stream to one peer. Calls never wait; one thread at a time uses a link.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace qx::collectives {

class Link {
 public:
  virtual ~Link() = default;

  // Takes a prefix of `bytes`, as much as there is room for, and returns its length.
  virtual size_t write(std::span<const std::byte> bytes) = 0;
  // Lets the peer see what was written.
  virtual void flush() = 0;
  // True where written bytes wait in this process for room.
  virtual bool has_unsent() const = 0;

  // Unread bytes that lie together: at least `wanted` of them (64 at most) where the peer has sent so many.
  virtual std::span<const std::byte> peek(size_t wanted) = 0;
  virtual void consume(size_t num_bytes) = 0;
  // Moves up to `size` bytes to `destination`.
  virtual size_t read(std::byte* destination, size_t size) {
    const std::span<const std::byte> unread = peek(1);
    const size_t taken = std::min(size, unread.size());
    if (taken > 0) std::memcpy(destination, unread.data(), taken);
    consume(taken);
    return taken;
  }

  virtual std::string_view name() const = 0;
  // True where both ends can map memory of each other.
  virtual bool shares_memory() const { return false; }
};

}  // namespace qx::collectives
