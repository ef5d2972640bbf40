// Shared memory between the ranks of one host. Each rank has one segment in the memory of the host, with a doorbell and
// one incoming ring a peer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/transport/doorbell.h"
#include "quincunx/collectives/transport/host_memory.h"
#include "quincunx/collectives/transport/link.h"
#include "quincunx/collectives/transport/ring_copy.h"

namespace qx::collectives {

// Written by one process and read by one other. Positions only grow; the offset is position modulo capacity.
struct Ring {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) std::atomic<uint32_t> writer_waits{0};
};

class Segment {
 public:
  // A rank's segment within the memory of the host, its own or a peer's.
  static Result<std::unique_ptr<Segment>> map(const HostMemory& memory, int rank);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Doorbell& doorbell();
  Ring& ring(int source_rank);
  std::byte* ring_data(int source_rank);
  // Tells the owner of this segment that `rank` writes to it from now on.
  void call(int rank);
  // On one's own segment: the ranks that have called since the last look.
  std::vector<int> take_callers();
  int64_t ring_bytes() const { return ring_bytes_; }

 private:
  Segment() = default;
  std::byte* base_ = nullptr;
  int64_t size_bytes_ = 0;
  int64_t ring_bytes_ = 0;
  int world_size_ = 0;
  std::vector<uint64_t> seen_callers_;
};

// What a segment of a job of so many ranks takes.
int64_t shared_segment_bytes(int world_size);
// Ring size for a number of ranks, a power of two.
int64_t shared_ring_bytes(int world_size);

// Reads this rank's own segment, writes into the peer's. Without the peer's, what is written is dropped.
class SharedMemoryLink : public Link {
 public:
  SharedMemoryLink(Segment& own, std::unique_ptr<Segment> peer, int own_rank, int peer_rank);

  size_t write(std::span<const std::byte> bytes) override;
  void flush() override;
  bool has_unsent() const override { return false; }
  std::span<const std::byte> peek(size_t wanted) override;
  void consume(size_t num_bytes) override;
  std::string_view name() const override { return "shared memory"; }
  bool shares_memory() const override { return true; }

 private:
  uint64_t room() const;

  std::unique_ptr<Segment> peer_;
  Ring& incoming_;
  Ring* outgoing_;  // null without the peer's segment
  const std::byte* incoming_data_;
  std::byte* outgoing_data_;
  uint64_t capacity_;
  RingCopy copy_;
  uint64_t written_ = 0;  // this process's copies of the positions that it moves
  uint64_t flushed_ = 0;
  uint64_t read_ = 0;
  uint64_t peer_read_ = 0;
};

}  // namespace qx::collectives
