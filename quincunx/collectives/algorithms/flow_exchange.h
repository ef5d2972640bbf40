// Streams that run from rank to rank: each goes along a chain of hosts and may branch off to ranks of a host on its
// way. A rank hands on what it has got, piece by piece, so that all links of a chain are busy at once. On its way a
// stream may be reduced: every rank combines what comes in with its own part before it goes on.
#pragma once

#include <optional>
#include <vector>

#include "quincunx/collectives/algorithms/exchange.h"
#include "quincunx/collectives/algorithms/partial_reduction.h"

namespace qx::collectives {

// One stream as one rank sees it.
struct Flow {
  int32_t id = 0;       // the same on all ranks; less than kMaxFlows
  int from = -1;        // the rank that it comes from; -1: it begins here
  std::vector<int> to;  // the ranks that it goes to
  std::byte* data = nullptr;
  int64_t size_bytes = 0;
  bool combines = false;  // `data` holds this rank's own part; what comes in is combined with it, and stays there
  // Of one that ends here and combines: the flow, by its place, that carries the finished result from `data` of that.
  int feeds = -1;
};

inline constexpr int32_t kMaxFlows = 1 << 14;

class FlowExchange final : public Exchange {
 public:
  struct Result {
    DType dtype = DType::kUInt8;
    int num_contributions = 1;
  };
  // Flows are sent in the order given, as far as they are ready. `partial` is for flows that combine.
  FlowExchange(std::vector<Flow> flows, std::optional<PartialReduction> partial, const Result& result);

  Status begin(std::span<const std::span<const std::byte>>) override { return ok_status(); }
  Operation operation() const override { return Operation::kSend; }
  std::optional<Chunk> next_chunk(int peer) const override;
  void mark_sent(int peer, const Chunk& chunk) override;
  int64_t receive(int peer, int32_t lane, uint8_t stream, Link& link, int64_t limit) override;
  void add_credit(int, int32_t, int64_t) override {}
  std::span<const std::byte> to_be_sent(int, uint8_t) const override { return {}; }
  int32_t offer(int, uint8_t) override { return 0; }
  void refused(int, int32_t, uint8_t) override {}
  bool read_from(int, int32_t, uint8_t, const std::byte*, int64_t) override { return false; }
  bool read_from(int, int32_t, const PeerMemory&, int64_t) override { return false; }
  void on_ready(int, int32_t, int64_t) override {}
  bool on_taken(int, int32_t, uint8_t) override { return false; }
  bool read_in_place() override { return false; }
  int64_t bytes_read_in_place() const override { return 0; }
  std::vector<Notice> take_notices() override { return {}; }
  bool is_complete() const override { return remaining_bytes_ == 0; }
  int64_t missing_from(int peer) const override;
  int64_t unsent_to(int peer) const override;

 private:
  struct State {
    Flow flow;
    int64_t received = 0;
    int64_t ready = 0;  // bytes that may go on
    std::vector<int64_t> sent;
  };
  struct Branch {
    size_t flow = 0;
    size_t branch = 0;
  };
  int64_t combine(State& state, Link& link, int64_t limit);
  void finish(const State& state, int64_t begin, int64_t size);

  std::vector<State> flows_;
  std::vector<std::vector<Branch>> to_peer_;
  std::vector<int> place_of_;  // of an id; -1: none of this rank's
  const std::optional<PartialReduction> partial_;
  const Result result_;
  int64_t remaining_bytes_ = 0;
};

}  // namespace qx::collectives
