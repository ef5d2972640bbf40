// A collective whose bytes go directly from the rank that has them to the rank that needs them. Stream 0 carries
// inputs, 1 the results that this rank has reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quincunx/collectives/algorithms/exchange.h"
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

// Bytes of one rank for each peer, or for one of several stages.
struct Moves {
  Operation operation = Operation::kAllToAll;
  struct Move {
    int peer = 0;
    Buffer buffer;
  };
  std::vector<Move> sends, receives;
  // Contributions of all ranks to `reduced`, in their order, go to its output.
  std::optional<Reducer::Slice> reduced;
  Reduction reduction;
};

class DirectExchange final : public Exchange {
 public:
  // The buffers of the call: one input or output, or one a rank.
  DirectExchange(const Call& call, std::vector<Buffer> inputs, std::vector<Buffer> outputs, int rank, int world_size);
  DirectExchange(const Moves& moves, int rank, int world_size);

  const Call& call() const { return call_; }
  std::span<const Buffer> inputs() const { return inputs_; }
  std::span<const Buffer> outputs() const { return outputs_; }
  // What travels with the call to this peer; empty where the input is larger than kInlineBytes.
  std::span<const std::byte> inline_input(int peer) const;

  // --- through the tree of a large group: see gathered_calls.h
  std::vector<std::byte> input_for_tree() const;
  // Writes the outputs. kDataLoss where the sizes are not the call's.
  Status take_result(const TreeResult& result);

  Status begin(std::span<const std::span<const std::byte>> inlined) override;
  Operation operation() const override { return call_.operation; }
  // Results come before inputs.
  std::optional<Chunk> next_chunk(int peer) const override;
  void mark_sent(int peer, const Chunk& chunk) override;
  int64_t receive(int peer, int32_t lane, uint8_t stream, Link& link, int64_t limit) override;
  void add_credit(int peer, int32_t lane, int64_t reduced_bytes) override;
  std::span<const std::byte> to_be_sent(int peer, uint8_t stream) const override;
  int32_t offer(int peer, uint8_t stream) override;
  void refused(int peer, int32_t lane, uint8_t stream) override;
  bool read_from(int peer, int32_t lane, uint8_t stream, const std::byte* data, int64_t size) override;
  bool read_from(int peer, int32_t lane, const PeerMemory& memory, int64_t size) override;
  void on_ready(int peer, int32_t lane, int64_t size) override;
  bool on_taken(int peer, int32_t lane, uint8_t stream) override;
  bool read_in_place() override;
  int64_t bytes_read_in_place() const override { return bytes_read_in_place_; }
  std::vector<Notice> take_notices() override;
  bool is_complete() const override { return remaining_bytes_ == 0; }
  int64_t missing_from(int peer) const override;
  int64_t unsent_to(int peer) const override;

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
    std::optional<PeerMemory> memory;     // or what reads it
    int64_t ready = 0;                    // bytes of it that are there
  };
  struct Peer {
    Outgoing out[2];
    Incoming in[2];
  };

  void plan_all_reduce(const Buffer& buffer);
  void plan_reduction(const Buffer& own, std::byte* output);
  void plan_reduction(const Reducer::Slice& slice);
  void send(int peer, const Buffer& buffer);
  void receive_into(int peer, const Buffer& buffer);
  void copy_own(const Buffer& from, const Buffer& to);
  void count_remaining();
  void after_reducing(int64_t before);
  bool expects(const Incoming& in, int64_t size) const;
  // So much more of a stream has been read where it lay.
  void read(int peer, uint8_t stream, int64_t num_bytes);
  // Copies the next piece of a stream that is not reduced; returns how many bytes.
  int64_t copy_piece(int peer, uint8_t stream);
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
