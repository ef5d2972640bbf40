// One collective on one rank: which bytes go to and come from each peer, and what becomes of them. Does no input or
// output itself. Two streams go to each peer: 0 carries inputs, 1 carries the results that this rank has reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quincunx/collectives/algorithms/reducer.h"
#include "quincunx/collectives/call.h"
#include "quincunx/collectives/transport/link.h"

namespace qx::collectives {

// Inputs up to this size travel with the call itself, so that a collective is one message each way. all_reduce sends
// the whole input to every rank up to here and a slice to each above.
inline constexpr int64_t kInlineBytes = 8 << 10;

class Exchange {
 public:
  // The buffers of the call: one input or output, or one a rank.
  Exchange(const Call& call, std::vector<Buffer> inputs, std::vector<Buffer> outputs, int rank, int world_size);

  // What travels with the call to this peer; empty where the input is larger than kInlineBytes.
  std::span<const std::byte> inline_input(int peer) const;
  // All ranks have entered with matching calls: moves what stays on this rank. `inlined[r]` came with rank r's call.
  // kDataLoss where its size is not the call's.
  Status begin(std::span<const std::span<const std::byte>> inlined);

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
  };
  struct Incoming {
    std::byte* data = nullptr;  // null: to the reducer
    int64_t size = 0;
    int64_t received = 0;
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

  Call call_;
  int rank_;
  int world_size_;
  std::vector<Peer> peers_;
  std::optional<Reducer> reducer_;
  Buffer copy_from_, copy_to_;
  int64_t remaining_bytes_ = 0;
  int64_t credited_bytes_ = 0;
};

}  // namespace qx::collectives
