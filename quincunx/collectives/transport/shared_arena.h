// Memory that the ranks of one host can read in place: one anonymous file a process, from which buffers are cut. Peers
// map it read-only through /proc, like the segments of shared_memory.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "quincunx/base/status.h"

namespace qx::collectives {

// Where a peer finds an arena; travels as it lies in memory.
struct ArenaAddress {
  int64_t pid = 0;
  int64_t fd = -1;
  int64_t size_bytes = 0;
  uint64_t nonce = 0;
  bool operator==(const ArenaAddress&) const = default;
};

class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  // The arena of this process, made by the first call. It lives as long as its buffers and whoever holds the pointer.
  static Result<std::shared_ptr<SharedArena>> of_this_process();
  // Null where none has been made.
  static std::shared_ptr<SharedArena> existing();
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  // Whole pages, contents undefined. Given back when the last copy of the pointer goes; the pages stay with the arena
  // for the next buffer, up to 1 GiB of them. kResourceExhausted where no gap is large enough.
  Result<std::shared_ptr<void>> allocate(int64_t size_bytes);
  // Where `size_bytes` at `data` lie in the arena; nullopt where they do not.
  std::optional<int64_t> offset_of(const void* data, int64_t size_bytes) const;
  const ArenaAddress& address() const { return address_; }
  const std::byte* base() const { return base_; }

 private:
  SharedArena() = default;
  static Result<std::shared_ptr<SharedArena>> create();
  void release(int64_t offset, int64_t size_bytes);

  ArenaAddress address_;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  std::map<int64_t, int64_t> gaps_;  // offset -> size
  int64_t idle_bytes_ = 0;           // of gaps that still hold pages
};

// A peer's arena, read-only.
class ArenaView {
 public:
  // Fails where the file is not the one that the address promises: see Segment::open.
  static Result<std::unique_ptr<ArenaView>> open(const ArenaAddress& address);
  ~ArenaView();
  ArenaView(const ArenaView&) = delete;
  ArenaView& operator=(const ArenaView&) = delete;

  uint64_t nonce() const { return nonce_; }
  // Null where the bytes do not lie within the arena.
  const std::byte* at(int64_t offset, int64_t size_bytes) const;

 private:
  ArenaView() = default;
  uint64_t nonce_ = 0;
  const std::byte* base_ = nullptr;
  int64_t size_bytes_ = 0;
  std::shared_ptr<SharedArena> own_;  // where the peer is a thread of this process
};

}  // namespace qx::collectives
