// The one place where a process's groups, links and waiting threads meet. All state is under one lock; nobody waits for
// a peer while holding it. Whoever waits for an operation moves the bytes itself: no thread is switched on the way of
// a small message. Operations that nobody waits for are moved by a helper thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "quincunx/collectives/operation_state.h"
#include "quincunx/collectives/peer_channel.h"
#include "quincunx/collectives/transport/doorbell.h"
#include "quincunx/collectives/transport/shared_arena.h"

namespace qx::collectives {

// Opens links. Calls come under the engine's lock; links are given to Engine::attach_link, also from within a call.
class LinkProvider {
 public:
  virtual ~LinkProvider() = default;
  // A frame waits for a link to this rank: asked once for each, and not for a rank that has one.
  virtual void want(int rank) = 0;
  // Attaches the links that peers have opened from their side. Part of every look at the links: cheap where none has.
  virtual void look() = 0;
};

class Engine final : public FrameHandler, public std::enable_shared_from_this<Engine> {
 public:
  enum class PeerState { kConnecting, kUp, kLost };
  static constexpr std::string_view kHasLeft = "has left: its communicator was destroyed";

  // Holds the engine's lock; callbacks of operations that ended meanwhile run after it is given back.
  class Guard {
   public:
    explicit Guard(Engine& engine) : engine_(engine), lock_(engine.mutex_) {}
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    std::unique_lock<std::mutex>& lock() { return lock_; }

   private:
    Engine& engine_;
    std::unique_lock<std::mutex> lock_;
  };

  Engine(int rank, int world_size);

  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(peers_.size()); }
  // False in a child after fork: the threads and the lock belong to the parent.
  bool belongs_to_this_process() const;
  Status foreign_process_error() const;

  // What the ranks that share this host's memory have in common, and others have not; 0 where none is shared.
  void set_host(uint32_t host) { host_ = host; }
  uint32_t host() const { return host_; }

  // Called by waiters of operations. Zero: the operation's own deadline. kAborted, while the operation goes on, where
  // the wait is interrupted: see interruption.h.
  Status wait(OperationState& operation, std::chrono::milliseconds timeout);

  // Waits, without driving, until the condition (evaluated under the lock) holds. kDeadlineExceeded when the deadline
  // passed first, kAborted where the wait is interrupted.
  Status wait_until(const std::function<bool()>& condition, Clock::time_point deadline);

  // --- under a Guard ---
  void add_group(Group& group);
  void remove_group(Group& group);
  // The peer is known to be there: groups may begin. Its link comes with the first frame for or from it.
  void set_present(int rank);
  // Also makes the peer present.
  void attach_link(int rank, std::unique_ptr<Link> link);
  bool has_link(int rank) const;
  // Has the link opened where there is none: for bytes that come without a posted frame before them.
  void want_link(int rank);
  // The peer's connection has ended: what it sent before is still read.
  void lose_peer(int rank, const std::string& reason);
  // The same of a peer that has left in order.
  void part_from(int rank);
  void set_connect_state(int rank, std::string state) { peers_[static_cast<size_t>(rank)].text = std::move(state); }
  // Not connected, though its process is known to be there: something else holds it up.
  void set_there(int rank, bool is_there) { peers_[static_cast<size_t>(rank)].is_there = is_there; }
  bool peer_is_there(int rank) const { return peers_[static_cast<size_t>(rank)].is_there; }
  PeerState peer_state(int rank) const { return peers_[static_cast<size_t>(rank)].state; }
  // Why a peer is not connected, or how it was lost.
  const std::string& peer_text(int rank) const { return peers_[static_cast<size_t>(rank)].text; }
  bool peer_has_left(int rank) const { return peers_[static_cast<size_t>(rank)].left; }
  std::string_view transport_of(int rank) const;
  // Waits for a link where the peer has none; dropped where it is not present or lost.
  void post(int rank, const FrameHeader& header, std::span<const std::byte> first,
            std::span<const std::byte> second = {});
  // Moves what can be moved on all links, once; true where anything moved.
  bool poll();
  void flush();
  void release(const void* owner);
  // True where the peer's link is shared memory, so that each may read the other's arena.
  bool shares_memory_with(int rank) const;
  // False once the peer could not read memory of this process that is in no arena.
  bool may_read_memory(int rank) const { return peers_[static_cast<size_t>(rank)].may_read_memory; }
  void forbid_reading(int rank) { peers_[static_cast<size_t>(rank)].may_read_memory = false; }
  // The peer's arena, mapped when it is first named; the last one is kept.
  Result<const ArenaView*> arena_of(int rank, const ArenaAddress& address);
  void end(OperationPtr operation, Status status, int source_rank = -1);
  void count_started() { ++active_operations_; }
  // An operation was started that perhaps nobody will wait for.
  void wake_helper();
  // Ends operations whose time has run out, and tells how long the next look may take.
  void expire_operations(Clock::time_point now);
  bool has_active_operations() const { return active_operations_ > 0; }
  bool has_operation_due_by(Clock::time_point time) const;
  // True where bytes for a peer have not left this process.
  bool has_unsent() const;
  // Tells the peers that have a link that this rank leaves in order, and those that still get one.
  void say_goodbye();
  // A group has failed because somebody has died or left. Some may only be told of it, through the tree, by this rank.
  void note_loss() { saw_loss_ = true; }
  // Without a Guard.
  bool saw_loss() const { return saw_loss_; }
  // Every group fails: connecting has failed or was given up.
  void fail_all(const Status& status);
  void wake_waiters();

  // --- set-up, before any peer is attached ---
  // Where peers ring from now on; the one before must stay for whoever sleeps on it.
  void use_doorbell(Doorbell& doorbell);
  void use_links(LinkProvider& provider) { provider_ = &provider; }
  void set_spin(std::chrono::nanoseconds spin) { spin_ = spin; }
  // The body of the helper thread: returns after stop_helper.
  void run_helper();
  void stop_helper();
  // All operations have ended: waits until the thread that drove one has left the doorbell, which may go then.
  void dismiss_driver(Guard& guard);

  // FrameHandler
  std::optional<OutgoingFrame> next_frame(int peer) override;
  Status on_frame(int peer, const FrameHeader& header, std::span<const std::byte> payload) override;
  Result<std::optional<int64_t>> on_stream(int peer, const FrameHeader& header, Link& link, int64_t limit) override;

  uint64_t frames_refused() const { return frames_refused_; }

 private:
  struct Peer {
    PeerState state = PeerState::kConnecting;
    bool left = false;  // said goodbye
    bool is_there = false;
    bool wanted = false;  // the provider was asked for a link
    std::string text = "no address published";
    std::unique_ptr<PeerChannel> channel;
    std::unique_ptr<ArenaView> arena;
    bool may_read_memory = true;
  };
  struct StoredFrame {
    int peer;
    FrameHeader header;
    std::vector<std::byte> payload;
  };

  void drive(Guard& guard, const OperationState* operation, Clock::time_point deadline);
  // Drives, or sleeps while another thread does.
  void rest(Guard& guard, const OperationState& operation, Clock::time_point until);
  // Asks without the lock. Nobody may be driving on behalf of this thread: the answer may take its time.
  bool is_interrupted(Guard& guard);
  bool poll_peer(int rank);
  void mark_lost(int rank, std::string_view reason);
  void post_goodbye(int rank);
  // How many rings the one operation waits for, at least.
  int num_calls_awaited() const;
  PeerChannel& channel_of(int rank);

  const int rank_;
  const uint64_t fork_generation_;
  const int64_t pid_;
  uint32_t host_ = 0;
  std::mutex mutex_;
  std::condition_variable waiters_;  // those that do not drive
  int num_waiters_ = 0;
  bool driven_ = false;  // a thread moves bytes, or sleeps on the doorbell
  bool helper_drives_ = false;
  bool helper_must_yield_ = false;
  bool helper_stops_ = false;
  std::condition_variable helper_;
  bool helper_sleeps_ = false;
  Clock::time_point helper_wakes_at_;
  std::chrono::nanoseconds spin_{0};
  Doorbell local_doorbell_;
  Doorbell* doorbell_ = &local_doorbell_;
  LinkProvider* provider_ = nullptr;

  std::vector<Peer> peers_;
  std::map<uint64_t, Group*> groups_;
  // Frames for groups that this rank has not made yet.
  std::map<uint64_t, std::vector<StoredFrame>> early_frames_;
  size_t num_early_frames_ = 0;
  std::set<uint64_t> closed_groups_;
  int active_operations_ = 0;
  bool says_goodbye_ = false;
  std::atomic<bool> saw_loss_{false};
  std::vector<std::pair<OperationPtr, std::function<void(const Status&)>>> finished_;
  uint64_t frames_refused_ = 0;
};

// Grows in a child process each time one is forked.
uint64_t fork_generation();

}  // namespace qx::collectives
