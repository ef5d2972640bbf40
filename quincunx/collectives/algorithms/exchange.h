// One collective on one rank: which bytes go to and come from each peer, and what becomes of them. Does no input or
// output itself. Two streams go to each peer: 0 carries inputs, 1 carries the results that this rank has reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quincunx/collectives/algorithms/gathered_calls.h"
#include "quincunx/collectives/algorithms/reducer.h"
#include "quincunx/collectives/call.h"
#include "quincunx/collectives/transport/link.h"
#include "quincunx/collectives/transport/peer_memory.h"

namespace qx::collectives {

// Inputs up to this size travel with the call itself, so that a collective is one message each way. all_reduce sends
// the whole input to every rank up to here and a slice to each above.
inline constexpr int64_t kInlineBytes = 8 << 10;
// Memory in an arena is read where it lies from this size on; below, the answer of the reader costs more than the copy.
inline constexpr int64_t kInPlaceBytes = 32 << 10;

class Exchange {
 public:
  // The buffers of the call: one input or output, or one a rank.
  Exchange(const Call& call, std::vector<Buffer> inputs, std::vector<Buffer> outputs, int rank, int world_size);

  // What travels with the call to this peer; empty where the input is larger than kInlineBytes.
  std::span<const std::byte> inline_input(int peer) const;
  // All ranks have entered with matching calls: moves what stays on this rank. `inlined[r]` came with rank r's call;
  // none at all where nothing did. kDataLoss where its size is not the call's.
  Status begin(std::span<const std::span<const std::byte>> inlined);

  // --- through the tree of a large group: see gathered_calls.h
  std::vector<std::byte> input_for_tree() const;
  // Writes the outputs. kDataLoss where the sizes are not the call's.
  Status take_result(const TreeResult& result);

  struct Chunk {
    uint8_t stream = 0;
    std::span<const std::byte> bytes;
  };
  // The next bytes that may go to this peer, at most kMaxStreamBytes; results come before inputs.
  std::optional<Chunk> next_chunk(int peer) const;
  void mark_sent(int peer, const Chunk& chunk);
  // Takes up to `limit` bytes from the link; -1 where the peer sends more than the calls said.
  int64_t receive(int peer, uint8_t stream, Link& link, int64_t limit);
  // The peer has reduced so much of what this rank sent.
  void add_credit(int peer, int64_t reduced_bytes);
  // Bytes that the peers may be told of, once each time a quarter of the window has been reduced.
  std::optional<int64_t> take_credit();

  // --- streams that the peer reads where they lie, in an arena of shared memory
  // What goes to the peer in this stream; empty where nothing does, or where it has begun to be sent.
  std::span<const std::byte> to_be_sent(int peer, uint8_t stream) const;
  // The stream is not sent until `refused`.
  void offer(int peer, uint8_t stream);
  void refused(int peer, uint8_t stream);
  // The peer's stream lies at `data`. False where the calls say nothing of such a stream.
  bool read_from(int peer, uint8_t stream, const std::byte* data, int64_t size);
  // The same for memory that only the system can read.
  bool read_from(int peer, uint8_t stream, std::unique_ptr<PeerMemory> memory, int64_t size);
  // So much of the peer's results is there.
  void on_ready(int peer, int64_t size);
  // The peer has read the whole stream. False where it was not offered.
  bool on_taken(int peer, uint8_t stream);
  // Copies or reduces the next piece of each such stream; true where there was any.
  bool read_in_place();
  int64_t bytes_read_in_place() const { return bytes_read_in_place_; }
  struct Notice {
    int peer = 0;
    FrameKind kind = FrameKind::kTaken;
    uint8_t stream = 0;
    int64_t count = 0;
  };
  // What the peers are to be told, once.
  std::vector<Notice> take_notices() { return std::exchange(notices_, {}); }

  bool is_complete() const { return remaining_bytes_ == 0; }
  // Bytes still to come from and to go to this peer.
  int64_t missing_from(int peer) const;
  int64_t unsent_to(int peer) const;

 private:
  struct Outgoing {
    const std::byte* data = nullptr;
    int64_t size = 0;
    int64_t sent = 0;
    int64_t allowed = 0;
    bool offered = false;
    int64_t announced = 0;  // of offered results
  };
  struct Incoming {
    std::byte* data = nullptr;  // null: to the reducer
    int64_t size = 0;
    int64_t received = 0;
    const std::byte* in_place = nullptr;  // the peer's own memory
    std::unique_ptr<PeerMemory> memory;   // or what reads it
    int64_t ready = 0;                    // bytes of it that are there
  };
  struct Peer {
    Outgoing out[2];
    Incoming in[2];
  };

  void plan_all_reduce(const Buffer& buffer);
  void plan_reduction(const Buffer& own, std::byte* output);
  void send(int peer, const Buffer& buffer);
  void receive_into(int peer, const Buffer& buffer);
  void copy_own(const Buffer& from, const Buffer& to);
  void after_reducing(int64_t before);
  bool expects(const Incoming& in, int64_t size) const;
  // So much more of a stream has been read in place.
  void read(int peer, uint8_t stream, int64_t num_bytes);
  // Tells the peer of results that it may read.
  void announce(int peer);

  Call call_;
  std::vector<Buffer> inputs_, outputs_;
  int rank_;
  int world_size_;
  std::vector<Peer> peers_;
  std::optional<Reducer> reducer_;
  Buffer copy_from_, copy_to_;
  int64_t remaining_bytes_ = 0;
  int64_t credited_bytes_ = 0;
  int num_in_place_ = 0;  // streams that are still to be read
  int64_t bytes_read_in_place_ = 0;
  std::vector<Notice> notices_;
};

}  // namespace qx::collectives
