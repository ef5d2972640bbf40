// One group of ranks on this rank: its collectives in order, its point-to-point messages, and what is known of its
// members. In a small group every rank tells its call to every other; in a large one the calls are gathered up a tree,
// and the verdict comes down. The first operation also tells all which ranks share a host. All methods are called under
// the engine's lock.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/collectives/algorithms/call_tree.h"
#include "quincunx/collectives/algorithms/direct_exchange.h"
#include "quincunx/collectives/algorithms/host_layout.h"
#include "quincunx/collectives/algorithms/ways.h"
#include "quincunx/collectives/engine.h"
#include "quincunx/collectives/offer.h"
#include "quincunx/collectives/operation_state.h"
#include "quincunx/collectives/point_to_point.h"

namespace qx::collectives {

class Group {
 public:
  // `members` are ranks of the engine; the position of its own among them is this rank's in the group.
  Group(Engine& engine, uint64_t id, std::string name, std::vector<int> members);

  uint64_t id() const { return id_; }
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }
  int world_rank(int rank) const { return members_[static_cast<size_t>(rank)]; }
  Engine& engine() { return engine_; }

  // Takes its place behind the collectives before it.
  void enqueue(OperationPtr operation, std::unique_ptr<DirectExchange> exchange);
  PointToPoint& point_to_point() { return point_to_point_; }
  // Why operations are refused; ok while they are not.
  const Status& failure() const { return failure_; }
  int64_t bytes_read_in_place() const { return bytes_read_in_place_; }
  // Ends all operations. The peers are told, so that they need not wait for their own deadline.
  // They first end what comes before `sequence`, the collective that has failed; 0: nothing.
  void fail(const Status& status, bool tell_peers, uint64_t sequence = 0);
  // This rank's communicator is destroyed: ends what is open and tells the peers.
  void close();
  // The operation's waiter has run out of time. nullopt: the operation has failed. Else the members of a large group
  // are being asked how far they are: to be called again at that time.
  std::optional<Clock::time_point> give_up(const OperationPtr& operation);
  void expire(Clock::time_point now);
  // An operation whose deadline is no later; null where there is none.
  OperationPtr first_due_by(Clock::time_point time) const;

  void on_peer_up(int world_rank);
  void on_link(int world_rank);
  // Also when the peer has left this group alone.
  void on_peer_lost(int world_rank);
  bool is_lost(int rank) const;
  Status on_frame(int world_rank, const FrameHeader& header, std::span<const std::byte> payload);
  Result<std::optional<int64_t>> on_stream(int world_rank, const FrameHeader& header, Link& link, int64_t limit);
  std::optional<OutgoingFrame> next_frame(int world_rank);
  // Reads the next pieces of what peers have offered; true where there were any.
  bool read_in_place();
  // Ranks that share memory with this one and have not told their call, in a group that waits for nothing else; else 0.
  int num_calls_awaited() const;
  // Why `rank` cannot be reached: "rank 2 (not connected: no address published)".
  std::string describe_peer(int rank) const;

 private:
  struct Pending {
    OperationPtr operation;
    std::unique_ptr<DirectExchange> direct;
    std::unique_ptr<Exchange> in_two_levels;  // instead, where the data goes so
    Exchange& exchange() const { return in_two_levels ? *in_two_levels : *direct; }
  };
  // A rank's entry into a collective. A rank can be one collective ahead of another: two are kept for each.
  struct Entry {
    bool present = false;
    Call call;
    std::vector<std::byte> input;
    uint32_t host = 0;
  };
  struct Member {
    Entry entries[2];
    bool entered_any = false;
    bool left = false;  // destroyed its communicator of this group
    uint64_t last_sequence = 0;
    Operation last_operation = Operation::kBarrier;
    bool asked = false;  // by a probe
    bool answered = false;
    bool is_waiting = false;  // it answered that an operation of this group holds it up itself
  };
  // A text that comes in several frames.
  struct LongText {
    std::vector<std::byte> bytes;
    bool is_complete = false;
  };

  int group_rank(int world_rank) const { return rank_of_[static_cast<size_t>(world_rank)]; }
  Entry& entry(int rank, uint64_t sequence) { return members_state_[static_cast<size_t>(rank)].entries[sequence % 2]; }
  const Entry& entry(int rank, uint64_t sequence) const {
    return members_state_[static_cast<size_t>(rank)].entries[sequence % 2];
  }
  // Announces the first operation of the queue when all members are connected.
  void start_next();
  // Compares the calls when all are there, and begins to move data.
  void begin_if_entered();
  void finish_if_complete();
  void finish(Status status);
  Status on_call(int rank, const FrameHeader& header, std::span<const std::byte> payload);
  // A stage of the operation begins.
  void start_stage();
  // Offers this rank's arena to a peer that can map it.
  void make_offers(int rank);
  Status on_offer(int rank, const FrameHeader& header, std::span<const std::byte> payload);
  Status take_offer(int rank, const FrameHeader& header, const Offer& offer);
  Status on_answer_to_offer(int rank, const FrameHeader& header);
  void send_notices();
  // The ranks that the operation waits for and the state of each.
  std::string waiting_for() const;
  std::string state_of(int rank) const;
  bool needs(int rank) const;
  // The rank is known to have entered this operation; false where that is not known.
  bool has_entered(int rank, uint64_t sequence) const;
  void note_entered(Member& member, uint64_t sequence, Operation operation);
  // The verdict is good: data moves directly between the ranks.
  void begin(std::span<const std::span<const std::byte>> inlined);
  Status check_sequence(const FrameHeader& header) const;
  // By the calls of the first operation: hosts[r] is that of rank r. The calls after it take the way of this layout.
  void learn_hosts(std::span<const uint32_t> hosts);

  // --- the tree of a large group
  bool uses_tree() const { return uses_tree_; }
  // Hands the calls of this rank and those below it to the parent, when all are there.
  void climb();
  void judge(std::vector<GatheredCall> calls);
  Status on_calls(int rank, const FrameHeader& header, std::span<const std::byte> payload);
  Status on_verdict(int rank, const FrameHeader& header, std::span<const std::byte> payload);
  struct Verdict {
    Status status;
    std::vector<uint32_t> hosts;  // empty where the group knows them
    TreeResult result;
  };
  void send_verdict(const Verdict& verdict);
  void take_verdict(const Verdict& verdict);
  void post_long(int rank, FrameHeader header, std::span<const std::byte> text);
  static Status take_piece(const FrameHeader& header, std::span<const std::byte> payload, LongText& text);

  // --- the end of a wait
  void conclude(const OperationState& operation);
  void probe();
  bool all_answered() const;
  void answer_probe(int rank);
  void on_probe_answer(int rank, const FrameHeader& header);
  // What has failed, as the rank that saw it put it.
  struct Failure {
    Status status;
    int rank = 0;
    uint64_t sequence = 0;  // of the collective; 0: of none
  };
  void fail_as_told(const Failure& told);
  void tell_failure(int except, const Failure& failure);
  void post_failure(int rank, const Failure& failure);
  void on_fail(int rank, const FrameHeader& header, std::span<const std::byte> payload);

  Engine& engine_;
  const uint64_t id_;
  const std::string name_;
  const std::vector<int> members_;
  std::vector<int> rank_of_;
  int rank_ = 0;
  std::deque<Pending> queue_;
  bool announced_ = false;  // the first of the queue has been
  bool begun_ = false;      // and its data moves
  uint64_t next_sequence_ = 0;
  uint64_t current_sequence_ = 0;
  std::vector<Member> members_state_;
  PointToPoint point_to_point_;
  Status failure_;
  Failure cause_;                     // of failure_
  std::optional<HostLayout> layout_;  // once the first operation has been compared
  bool uses_tree_;
  CallTree tree_;
  // By rank and sequence: what those below sent, perhaps sooner than this rank knew that they are below it.
  std::map<int, std::array<LongText, 2>> below_;
  LongText verdict_;
  bool climbed_ = false;  // the calls below are the parent's
  // Of the operation that has run out of time, while the members are asked.
  OperationPtr expired_;
  Clock::time_point expired_at_;
  bool probing_ = false;
  // A peer's failure in a later collective than this rank's: the one before may still end well.
  std::optional<Failure> later_failure_;
  int64_t bytes_read_in_place_ = 0;
  // Offers and what was said about them before this rank had seen all calls.
  struct EarlyOffer {
    int rank = 0;
    FrameHeader header;
    Offer offer;
  };
  std::vector<EarlyOffer> early_offers_;
};

}  // namespace qx::collectives
