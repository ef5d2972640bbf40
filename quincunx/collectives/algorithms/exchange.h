// One collective on one rank: which bytes go to and come from each peer, and what becomes of them. Does no input or
// output itself. Up to two streams go to each peer at a time: 0 carries inputs, 1 carries results. Where a collective
// has several stages or many streams, the lane of a frame tells which it belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/call.h"
#include "quincunx/collectives/transport/link.h"
#include "quincunx/collectives/transport/peer_memory.h"

namespace qx::collectives {

class Exchange {
 public:
  struct Chunk {
    uint8_t stream = 0;
    int32_t lane = 0;
    std::span<const std::byte> bytes;
  };
  struct Notice {
    int peer = 0;
    FrameKind kind = FrameKind::kTaken;
    uint8_t stream = 0;
    int32_t lane = 0;
    int64_t count = 0;
  };

  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // All ranks have entered with matching calls: moves what stays on this rank. `inlined[r]` came with rank r's call;
  // none at all where nothing did. kDataLoss where its size is not the call's.
  virtual Status begin(std::span<const std::span<const std::byte>> inlined) = 0;
  // Goes on to the next stage where this one is complete; true where it did.
  virtual bool advance() { return false; }
  // What moves in this stage: tells which way large messages take.
  virtual Operation operation() const = 0;

  // The next bytes that may go to this peer, at most kMaxStreamBytes.
  virtual std::optional<Chunk> next_chunk(int peer) const = 0;
  virtual void mark_sent(int peer, const Chunk& chunk) = 0;
  // Takes up to `limit` bytes from the link, none where their stage has not come; -1 where the peer sends more than the
  // calls said.
  virtual int64_t receive(int peer, int32_t lane, uint8_t stream, Link& link, int64_t limit) = 0;
  // The peer has reduced so much of what this rank sent.
  virtual void add_credit(int peer, int32_t lane, int64_t reduced_bytes) = 0;

  // --- streams that the peer reads where they lie, in an arena of shared memory
  // What goes to the peer in this stream; empty where nothing does, or where it has begun to be sent.
  virtual std::span<const std::byte> to_be_sent(int peer, uint8_t stream) const = 0;
  // The stream is not sent until `refused`. Returns its lane.
  virtual int32_t offer(int peer, uint8_t stream) = 0;
  virtual void refused(int peer, int32_t lane, uint8_t stream) = 0;
  // The peer's stream lies at `data`. False where the calls say nothing of such a stream.
  virtual bool read_from(int peer, int32_t lane, uint8_t stream, const std::byte* data, int64_t size) = 0;
  // The same for inputs in memory that only the system can read, and that are copied and not reduced.
  virtual bool read_from(int peer, int32_t lane, const PeerMemory& memory, int64_t size) = 0;
  // So much of the peer's results is there.
  virtual void on_ready(int peer, int32_t lane, int64_t size) = 0;
  // The peer has read the whole stream. False where it was not offered.
  virtual bool on_taken(int peer, int32_t lane, uint8_t stream) = 0;
  // Copies or reduces the next piece of each such stream; true where there was any.
  virtual bool read_in_place() = 0;
  virtual int64_t bytes_read_in_place() const = 0;
  // What the peers are to be told, once.
  virtual std::vector<Notice> take_notices() = 0;

  virtual bool is_complete() const = 0;
  // Bytes still to come from and to go to this peer.
  virtual int64_t missing_from(int peer) const = 0;
  virtual int64_t unsent_to(int peer) const = 0;
};

}  // namespace qx::collectives
