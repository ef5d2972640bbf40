#include "quincunx/collectives/engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "quincunx/collectives/group.h"
#include "quincunx/collectives/interruption.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// A thread that sleeps looks around this often even if nobody rings, and one that waits asks whether it still shall.
constexpr milliseconds kLookAround{100};
// So long it sleeps until all the calls are there that it waits for: what comes instead of one is seen no later.
constexpr milliseconds kGatherNap{2};
// How soon an operation that nobody waits for is taken up, at most.
constexpr milliseconds kHelperNap{1};
constexpr milliseconds kLongestHelperNap{64};
// Frames kept for groups that this rank is still to make.
constexpr size_t kMaxEarlyFrames = 4096;

std::atomic<uint64_t> forks{0};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

uint64_t fork_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  static_cast<void>(registered);
  return forks.load(std::memory_order_relaxed);
}

Engine::Guard::~Guard() {
  auto finished = std::move(engine_.finished_);
  engine_.finished_.clear();
  lock_.unlock();
  for (auto& [operation, callback] : finished) {
    if (callback) callback(operation->status());
  }
}

Engine::Engine(int rank, int world_size)
    : rank_(rank), fork_generation_(fork_generation()), pid_(getpid()), peers_(static_cast<size_t>(world_size)) {
  peers_[static_cast<size_t>(rank)].state = PeerState::kUp;
}

bool Engine::belongs_to_this_process() const { return fork_generation_ == fork_generation(); }

Status Engine::foreign_process_error() const {
  return failed_precondition("the communicator belongs to process " + std::to_string(pid_) +
                             " and was inherited by fork: create a communicator in the child");
}

void Engine::add_group(Group& group) {
  groups_[group.id()] = &group;
  const auto early = early_frames_.find(group.id());
  if (early == early_frames_.end()) return;
  const std::vector<StoredFrame> frames = std::move(early->second);
  early_frames_.erase(early);
  num_early_frames_ -= frames.size();
  for (const StoredFrame& frame : frames) {
    const Status status = group.on_frame(frame.peer, frame.header, frame.payload);
    if (!status.ok()) lose_peer(frame.peer, status.message());
  }
}

void Engine::remove_group(Group& group) {
  groups_.erase(group.id());
  closed_groups_.insert(group.id());
}

void Engine::set_present(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.state != PeerState::kConnecting) return;
  peer.state = PeerState::kUp;
  peer.text.clear();
  for (auto& [id, group] : groups_) group->on_peer_up(rank);
  wake_waiters();
}

PeerChannel& Engine::channel_of(int rank) {
  auto& channel = peers_[static_cast<size_t>(rank)].channel;
  if (!channel) channel = std::make_unique<PeerChannel>(rank, *this);
  return *channel;
}

void Engine::attach_link(int rank, std::unique_ptr<Link> link) {
  channel_of(rank).attach(std::move(link));
  set_present(rank);
  for (auto& [id, group] : groups_) group->on_link(rank);
  if (says_goodbye_) post_goodbye(rank);
  if (driven_) doorbell_->wake();
}

bool Engine::has_link(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return peer.channel && peer.channel->has_link();
}

void Engine::want_link(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.wanted || rank == rank_ || provider_ == nullptr || has_link(rank)) return;
  peer.wanted = true;
  provider_->want(rank);
}

void Engine::lose_peer(int rank, const std::string& reason) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.state == PeerState::kLost) return;
  if (provider_ != nullptr) provider_->look();
  while (has_link(rank) && poll_peer(rank)) {
  }
  if (peer.state == PeerState::kLost) return;
  mark_lost(rank, reason);
}

void Engine::part_from(int rank) {
  peers_[static_cast<size_t>(rank)].left = true;
  lose_peer(rank, std::string(kHasLeft));
}

void Engine::mark_lost(int rank, std::string_view reason) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  peer.state = PeerState::kLost;
  peer.text = peer.left ? kHasLeft : reason;
  // A copy: a group that fails may end the last operation of another.
  const auto groups = groups_;
  for (auto& [id, group] : groups) group->on_peer_lost(rank);
}

std::string_view Engine::transport_of(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return has_link(rank) ? peer.channel->link()->name() : "none";
}

void Engine::post(int rank, const FrameHeader& header, std::span<const std::byte> first,
                  std::span<const std::byte> second) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.state != PeerState::kUp || rank == rank_) return;
  channel_of(rank).post(header, first, second);
  want_link(rank);
}

bool Engine::poll_peer(int rank) {
  const Result<bool> moved = peers_[static_cast<size_t>(rank)].channel->pump();
  if (moved.ok()) return *moved;
  ++frames_refused_;
  mark_lost(rank, "sent something that is not the protocol: " + moved.status().message());
  return false;
}

bool Engine::poll() {
  bool moved = false;
  if (provider_ != nullptr) provider_->look();
  for (int r = 0; r < world_size(); ++r) {
    if (has_link(r) && peer_state(r) == PeerState::kUp && poll_peer(r)) moved = true;
  }
  for (auto& [id, group] : groups_) moved = group->read_in_place() || moved;
  return moved;
}

void Engine::flush() {
  for (int r = 0; r < world_size(); ++r) {
    if (has_link(r) && peer_state(r) == PeerState::kUp) peers_[static_cast<size_t>(r)].channel->pump_out();
  }
}

void Engine::release(const void* owner) {
  for (Peer& peer : peers_) {
    if (peer.channel) peer.channel->release(owner);
  }
}

bool Engine::shares_memory_with(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return has_link(rank) && peer.channel->link()->shares_memory();
}

Result<const ArenaView*> Engine::arena_of(int rank, const ArenaAddress& address) {
  auto& arena = peers_[static_cast<size_t>(rank)].arena;
  if (!arena || arena->nonce() != address.nonce) {
    arena.reset();
    QX_ASSIGN_OR_RETURN(arena, ArenaView::open(address));
  }
  return static_cast<const ArenaView*>(arena.get());
}

void Engine::end(OperationPtr operation, Status status, int source_rank) {
  --active_operations_;
  auto callback = operation->end(std::move(status), source_rank);
  finished_.emplace_back(std::move(operation), std::move(callback));
  wake_waiters();
}

void Engine::use_doorbell(Doorbell& doorbell) {
  Doorbell& before = *doorbell_;
  doorbell_ = &doorbell;
  before.wake();
}

void Engine::wake_waiters() {
  if (num_waiters_ > 0) waiters_.notify_all();
  if (driven_) doorbell_->wake();
}

void Engine::expire_operations(Clock::time_point now) {
  const auto groups = groups_;
  for (auto& [id, group] : groups) group->expire(now);
}

bool Engine::has_operation_due_by(Clock::time_point time) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [time](const auto& group) { return group.second->first_due_by(time) != nullptr; });
}

void Engine::fail_all(const Status& status) {
  const auto groups = groups_;
  for (auto& [id, group] : groups) group->fail(status, true);
}

// Each of these ranks rings once at least: being woken by every one of them would cost a change of processes each.
int Engine::num_calls_awaited() const {
  if (active_operations_ != 1) return 1;
  for (const auto& [id, group] : groups_) {
    if (const int num_calls = group->num_calls_awaited(); num_calls > 0) return num_calls;
  }
  return 1;
}

// Moves bytes until the operation has ended, the deadline has passed or, in the helper, somebody else wants to.
void Engine::drive(Guard& guard, const OperationState* operation, Clock::time_point deadline) {
  const auto done = [&] {
    return operation != nullptr ? operation->is_completed()
                                : (active_operations_ == 0 && !has_unsent()) || helper_must_yield_ || helper_stops_;
  };
  Clock::time_point spin_until = Clock::now() + spin_;
  bool gathers = true;
  while (!done()) {
    if (poll()) {
      if (done()) return;
      spin_until = Clock::now() + spin_;
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return;
    if (now < spin_until) {
      guard.lock().unlock();
      relax();
      guard.lock().lock();
      continue;
    }
    Doorbell& doorbell = *doorbell_;
    const int num_rings = gathers ? num_calls_awaited() : 1;
    const uint32_t seen = doorbell.announce(static_cast<uint32_t>(num_rings));
    if (poll() || done()) {
      doorbell.cancel();
      continue;
    }
    guard.lock().unlock();
    const milliseconds nap = num_rings > 1 ? kGatherNap : kLookAround;
    doorbell.sleep(seen, std::min<std::chrono::nanoseconds>(deadline - now, nap));
    guard.lock().lock();
    gathers = num_rings == 1 || Clock::now() < now + kGatherNap;
  }
}

Status Engine::wait(OperationState& operation, milliseconds timeout) {
  if (!belongs_to_this_process()) return foreign_process_error();
  Clock::time_point now = Clock::now();
  Clock::time_point deadline =
      timeout.count() > 0 ? std::min(now + timeout, operation.deadline()) : operation.deadline();
  Clock::time_point ask_at = now + kLookAround;
  bool interrupted = false;
  Guard guard(*this);
  while (!operation.is_completed()) {
    if (now >= deadline) {
      const auto again = operation.group()->give_up(operation.shared_from_this());
      flush();
      if (!again) break;
      deadline = *again;
    }
    if (now >= ask_at) {
      interrupted = is_interrupted(guard);
      if (interrupted) break;
      ask_at = now + kLookAround;
    }
    rest(guard, operation, std::min(deadline, ask_at));
    if (!operation.is_completed()) now = Clock::now();
  }
  if (active_operations_ > 0 || has_unsent()) wake_helper();
  // Even where the operation has ended meanwhile: whoever interrupts a wait counts on being heard.
  if (interrupted) return aborted(operation.label() + ": the wait was interrupted; the operation goes on");
  return operation.status();
}

void Engine::rest(Guard& guard, const OperationState& operation, Clock::time_point until) {
  if (!driven_) {
    driven_ = true;
    drive(guard, &operation, until);
    driven_ = false;
    if (num_waiters_ > 0) waiters_.notify_all();
    return;
  }
  if (helper_drives_) {
    helper_must_yield_ = true;
    doorbell_->wake();
  }
  ++num_waiters_;
  waiters_.wait_until(guard.lock(), until);
  --num_waiters_;
}

bool Engine::is_interrupted(Guard& guard) {
  const InterruptCheck check = interrupt_check();
  if (check == nullptr) return false;
  guard.lock().unlock();
  const bool interrupted = check();
  guard.lock().lock();
  return interrupted;
}

Status Engine::wait_until(const std::function<bool()>& condition, Clock::time_point deadline) {
  Guard guard(*this);
  for (Clock::time_point now = Clock::now(), ask_at = now + kLookAround; !condition(); now = Clock::now()) {
    if (now >= deadline) return deadline_exceeded("the condition does not hold");
    if (now >= ask_at) {
      if (is_interrupted(guard)) return aborted("the wait was interrupted");
      ask_at = now + kLookAround;
    }
    ++num_waiters_;
    waiters_.wait_until(guard.lock(), std::min(deadline, ask_at));
    --num_waiters_;
  }
  return ok_status();
}

bool Engine::has_unsent() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.state == PeerState::kUp && peer.channel && peer.channel->has_unsent();
  });
}

void Engine::say_goodbye() {
  says_goodbye_ = true;
  for (int r = 0; r < world_size(); ++r) {
    if (has_link(r)) post_goodbye(r);
  }
  // Those that have called meanwhile.
  if (provider_ != nullptr) provider_->look();
  flush();
}

void Engine::post_goodbye(int rank) {
  FrameHeader header;
  header.kind = FrameKind::kGoodbye;
  post(rank, header, {});
}

void Engine::wake_helper() {
  if (helper_sleeps_ && helper_wakes_at_ > Clock::now() + 2 * kHelperNap) helper_.notify_one();
}

void Engine::run_helper() {
  Guard guard(*this);
  milliseconds nap = kHelperNap;
  while (!helper_stops_) {
    if ((active_operations_ > 0 || has_unsent()) && !driven_ && !helper_must_yield_) {
      driven_ = helper_drives_ = true;
      drive(guard, nullptr, Clock::time_point::max());
      driven_ = helper_drives_ = false;
      if (num_waiters_ > 0) waiters_.notify_all();
      nap = kHelperNap;
    }
    helper_must_yield_ = false;
    // Finished operations are handed over outside of the lock before the thread rests.
    auto finished = std::move(finished_);
    finished_.clear();
    if (!finished.empty()) {
      guard.lock().unlock();
      for (auto& [operation, callback] : finished) {
        if (callback) callback(operation->status());
      }
      finished.clear();
      guard.lock().lock();
    }
    if (helper_stops_) break;
    helper_sleeps_ = true;
    helper_wakes_at_ = Clock::now() + nap;
    if (helper_.wait_for(guard.lock(), nap) == std::cv_status::no_timeout) {
      nap = kHelperNap;
    } else {
      nap = std::min(2 * nap, kLongestHelperNap);
      // A rank that computes still answers peers that ask how far it is.
      if (nap == kLongestHelperNap && !driven_) poll();
    }
    helper_sleeps_ = false;
  }
}

void Engine::stop_helper() {
  helper_stops_ = true;
  helper_.notify_all();
  doorbell_->wake();
}

void Engine::dismiss_driver(Guard& guard) {
  while (driven_) {
    doorbell_->wake();
    guard.lock().unlock();
    std::this_thread::yield();
    guard.lock().lock();
  }
}

std::optional<OutgoingFrame> Engine::next_frame(int peer) {
  for (auto& [id, group] : groups_) {
    if (auto frame = group->next_frame(peer)) return frame;
  }
  return std::nullopt;
}

Status Engine::on_frame(int peer, const FrameHeader& header, std::span<const std::byte> payload) {
  if (header.kind == FrameKind::kGoodbye && header.group == 0) {
    // Whatever it sent for its groups has come before.
    peers_[static_cast<size_t>(peer)].left = true;
    mark_lost(peer, kHasLeft);
    return ok_status();
  }
  const auto found = groups_.find(header.group);
  if (found != groups_.end()) return found->second->on_frame(peer, header, payload);
  if (header.kind == FrameKind::kProbe) {
    FrameHeader answer;
    answer.kind = FrameKind::kProbeAnswer;
    answer.group = header.group;
    answer.stream = closed_groups_.contains(header.group) ? 1 : 0;
    post(peer, answer, {});
    return ok_status();
  }
  if (closed_groups_.contains(header.group)) return ok_status();
  if (num_early_frames_ >= kMaxEarlyFrames) return data_loss("too many frames for groups that this rank has not made");
  ++num_early_frames_;
  early_frames_[header.group].push_back({peer, header, {payload.begin(), payload.end()}});
  return ok_status();
}

Result<std::optional<int64_t>> Engine::on_stream(int peer, const FrameHeader& header, Link& link, int64_t limit) {
  const auto found = groups_.find(header.group);
  if (found == groups_.end()) return std::optional<int64_t>();
  return found->second->on_stream(peer, header, link, limit);
}

}  // namespace qx::collectives
