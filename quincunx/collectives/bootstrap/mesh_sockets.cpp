// The socket thread of Mesh: connections, handshakes, deadlines and deaths.
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "quincunx/collectives/bootstrap/mesh.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

constexpr size_t kTokenBytes = 32;
// A connection that has not said who it is after this long is dropped.
constexpr milliseconds kHandshakeTimeout{10000};
// Before another accept when one has failed.
constexpr milliseconds kAcceptPause{20};
// The socket thread's look at deadlines while operations run, and otherwise.
constexpr milliseconds kBusyTick{50};
constexpr milliseconds kIdleTick{1000};
// Spinning longer than a wake-up takes gains nothing: about 30 us on the 2-core machine of development.
constexpr std::chrono::microseconds kSpin{30};

enum class Watch : uint64_t { kWake, kListener, kPending, kPeer };
uint64_t watch_tag(Watch kind, int value) { return static_cast<uint64_t>(kind) << 32 | static_cast<uint32_t>(value); }

void watch(const Socket& epoll, int fd, uint32_t events, uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  epoll_ctl(epoll.fd(), EPOLL_CTL_ADD, fd, &event);
}

int num_allowed_cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::vector<std::byte> handshake_frame(FrameHeader header, std::string_view payload) {
  header.payload_bytes = static_cast<int64_t>(payload.size());
  std::vector<std::byte> frame(kHeaderBytes + static_cast<size_t>(padded_bytes(header.payload_bytes)));
  encode_frame_header(header, std::span<std::byte, kHeaderBytes>(frame.data(), kHeaderBytes));
  std::memcpy(frame.data() + kHeaderBytes, payload.data(), payload.size());
  return frame;
}

}  // namespace

void Mesh::run_sockets() {
  std::vector<epoll_event> events(64);
  watch(epoll_, wake_.fd(), EPOLLIN, watch_tag(Watch::kWake, 0));
  while (!stop_) {
    start_connects();
    const int timeout = milliseconds_to_next_event(Clock::now());
    const int count = epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), timeout);
    for (int i = 0; i < count && !stop_; ++i) {
      const auto kind = static_cast<Watch>(events[static_cast<size_t>(i)].data.u64 >> 32);
      const auto value = static_cast<int>(events[static_cast<size_t>(i)].data.u64 & 0xffffffff);
      switch (kind) {
        case Watch::kWake: {
          uint64_t count_of_wakes;
          if (read(wake_.fd(), &count_of_wakes, sizeof(count_of_wakes)) < 0) break;
          break;
        }
        case Watch::kListener: accept_all(listeners_[static_cast<size_t>(value)]); break;
        case Watch::kPending: on_pending_event(value, events[static_cast<size_t>(i)].events); break;
        case Watch::kPeer: on_peer_event(value); break;
      }
    }
    expire(Clock::now());
  }
}

int Mesh::milliseconds_to_next_event(Clock::time_point now) {
  milliseconds tick = kIdleTick;
  {
    Engine::Guard guard(*engine_);
    if (engine_->has_active_operations()) tick = kBusyTick;
  }
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::kConnecting) {
    tick = std::min(tick, kBusyTick);
    if (const auto next = rendezvous_.next_attempt()) {
      const auto left = std::chrono::ceil<milliseconds>(std::max(*next, now) - now);
      tick = std::min(tick, left);
    }
  }
  return static_cast<int>(tick.count());
}

void Mesh::start_connects() {
  std::vector<Rendezvous::Connect> due;
  {
    const std::lock_guard lock(mutex_);
    for (; num_watched_listeners_ < listeners_.size(); ++num_watched_listeners_) {
      watch(epoll_, listeners_[num_watched_listeners_].fd(), EPOLLIN,
            watch_tag(Watch::kListener, static_cast<int>(num_watched_listeners_)));
    }
    if (phase_ != Phase::kConnecting) return;
    due = rendezvous_.due_connects(Clock::now());
  }
  for (const auto& [rank, endpoint] : due) begin_connect(rank, endpoint);
}

void Mesh::begin_connect(int rank, const std::string& text) {
  const Result<Endpoint> endpoint = parse_endpoint(text);
  Result<Socket> socket = endpoint.ok() ? start_connect(*endpoint) : Result<Socket>(endpoint.status());
  if (!socket.ok()) {
    const std::lock_guard lock(mutex_);
    return rendezvous_.on_connect_failed(rank, socket.status().message(), Clock::now());
  }
  const int fd = socket->fd();
  Pending pending;
  pending.socket = std::move(*socket);
  pending.rank = rank;
  pending.deadline = Clock::now() + kHandshakeTimeout;
  pending_[fd] = std::move(pending);
  watch(epoll_, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, watch_tag(Watch::kPending, fd));
}

void Mesh::accept_all(const Socket& listener) {
  while (true) {
    Result<Socket> socket = accept_from(listener);
    if (!socket.ok()) {
      // The listener stays readable while no descriptor is left: this must not become a busy loop.
      if (socket.status().code() != StatusCode::kNotFound) std::this_thread::sleep_for(kAcceptPause);
      return;
    }
    const int fd = socket->fd();
    Pending pending;
    pending.socket = std::move(*socket);
    pending.deadline = Clock::now() + kHandshakeTimeout;
    pending_[fd] = std::move(pending);
    watch(epoll_, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, watch_tag(Watch::kPending, fd));
  }
}

void Mesh::drop(int fd, const std::string& reason) {
  const auto found = pending_.find(fd);
  if (found == pending_.end()) return;
  if (found->second.rank < 0) {
    num_dropped_.fetch_add(1, std::memory_order_relaxed);
  } else {
    const std::lock_guard lock(mutex_);
    rendezvous_.on_connect_failed(found->second.rank, reason, Clock::now());
  }
  pending_.erase(found);
}

void Mesh::send_hello(Pending& pending) {
  FrameHeader header;
  header.kind = FrameKind::kHello;
  header.group = job_id_;
  std::string payload;
  {
    const std::lock_guard lock(mutex_);
    const PeerRecord& peer = *rendezvous_.record_of(pending.rank);
    payload = peer.token + rendezvous_.own().encode();
    if (segment_ && peer.same_host(rendezvous_.own())) {
      auto opened = Segment::open(peer.segment, options_.world_size);
      if (opened.ok()) pending.segment = std::move(*opened);
    }
  }
  header.sequence = pending.segment ? 1 : 0;
  const std::vector<std::byte> frame = handshake_frame(header, payload);
  // A fresh connection's buffer holds it; a short write ends in the handshake's time limit and a second attempt.
  if (send(pending.socket.fd(), frame.data(), frame.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(frame.size())) {
    pending.hello_sent = true;
  }
}

void Mesh::on_pending_event(int fd, uint32_t events) {
  const auto found = pending_.find(fd);
  if (found == pending_.end()) return;
  Pending& pending = found->second;
  if (pending.rank >= 0 && !pending.hello_sent) {
    const int error = socket_error(pending.socket);
    if (error != 0) return drop(fd, std::strerror(error));
    if ((events & EPOLLOUT) != 0) send_hello(pending);
  }
  std::byte buffer[4096];
  ssize_t got = 0;
  while ((got = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
    pending.received.insert(pending.received.end(), buffer, buffer + got);
    if (pending.received.size() > static_cast<size_t>(2 * kMaxStoredBytes)) return drop(fd, "too long a handshake");
  }
  const bool closed = got == 0 || (errno != EAGAIN && errno != EINTR);
  const std::vector<std::byte>& bytes = pending.received;
  if (bytes.size() >= kHeaderBytes) {
    const auto header = decode_frame_header(std::span<const std::byte, kHeaderBytes>(bytes.data(), kHeaderBytes));
    const FrameKind expected = pending.rank < 0 ? FrameKind::kHello : FrameKind::kWelcome;
    if (!header.ok() || header->kind != expected || header->group != job_id_) return drop(fd, "a foreign protocol");
    const size_t size = kHeaderBytes + static_cast<size_t>(padded_bytes(header->payload_bytes));
    if (bytes.size() >= size) {
      const std::span<const std::byte> payload(bytes.data() + kHeaderBytes, static_cast<size_t>(header->payload_bytes));
      std::vector<std::byte> rest(bytes.begin() + static_cast<long>(size), bytes.end());
      const Status status = on_first_frame(pending, *header, payload, std::move(rest));
      if (status.ok())
        pending_.erase(fd);
      else
        drop(fd, status.message());
      return;
    }
  }
  if (closed) drop(fd, "the peer closed the connection");
}

Status Mesh::on_first_frame(Pending& pending, const FrameHeader& header, std::span<const std::byte> payload,
                            std::vector<std::byte> rest) {
  if (payload.size() < kTokenBytes) return data_loss("a handshake without a token");
  const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
  const std::string token = text.substr(0, kTokenBytes);
  if (pending.rank >= 0) {
    if (token != rendezvous_.own().token) return data_loss("a welcome without this rank's token");
    if (header.sequence == 0) pending.segment.reset();
    complete(pending, pending.rank, std::move(pending.segment), std::move(rest));
    return ok_status();
  }
  QX_ASSIGN_OR_RETURN(const PeerRecord from, PeerRecord::decode(text.substr(kTokenBytes)));
  {
    const std::lock_guard lock(mutex_);
    QX_RETURN_IF_ERROR(rendezvous_.check_hello(from, token));
    QX_RETURN_IF_ERROR(rendezvous_.on_record(from.rank, text.substr(kTokenBytes)));
  }
  std::unique_ptr<Segment> segment;
  if (header.sequence == 1 && segment_) {
    auto opened = Segment::open(from.segment, options_.world_size);
    if (opened.ok()) segment = std::move(*opened);
  }
  FrameHeader welcome;
  welcome.kind = FrameKind::kWelcome;
  welcome.group = job_id_;
  welcome.sequence = segment ? 1 : 0;
  const std::vector<std::byte> frame = handshake_frame(welcome, from.token);
  if (send(pending.socket.fd(), frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size())) {
    return unavailable("the welcome could not be sent");
  }
  complete(pending, from.rank, std::move(segment), std::move(rest));
  return ok_status();
}

void Mesh::complete(Pending& pending, int rank, std::unique_ptr<Segment> segment, std::vector<std::byte> rest) {
  const auto index = static_cast<size_t>(rank);
  const int fd = pending.socket.fd();
  sockets_[index] = std::move(pending.socket);
  std::unique_ptr<Link> link;
  if (segment) {
    ++num_shared_;
    link = std::make_unique<SharedMemoryLink>(*segment_, std::move(segment), options_.rank, rank);
  } else {
    auto tcp = std::make_unique<TcpLink>(fd, std::move(rest));
    tcp_links_[index] = tcp.get();
    link = std::move(tcp);
  }
  bool all_up = false;
  {
    const std::lock_guard lock(mutex_);
    rendezvous_.on_up(rank);
    all_up = rendezvous_.is_complete();
    if (all_up && phase_ == Phase::kConnecting) phase_ = Phase::kReady;
    if (all_up && segment_) segment_->close_descriptor();
  }
  if (all_up) changed_.notify_all();
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, fd, nullptr);
  watch(epoll_, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, watch_tag(Watch::kPeer, rank));
  Engine::Guard guard(*engine_);
  // Spinning only pays while every rank of this host can be running.
  const bool all_can_run = num_shared_ + 1 <= num_allowed_cpus();
  engine_->set_spin(all_can_run ? std::chrono::nanoseconds(kSpin) : std::chrono::nanoseconds(0));
  engine_->attach_link(rank, std::move(link));
}

std::string Mesh::loss_text(int rank, const std::string& how) const {
  const std::lock_guard lock(mutex_);
  const PeerRecord* record = rendezvous_.record_of(rank);
  return "died: its process " + (record != nullptr ? std::to_string(record->pid) : "") + " " + how + " without leaving";
}

void Mesh::on_peer_event(int rank) {
  const auto index = static_cast<size_t>(rank);
  std::string lost;
  if (tcp_links_[index] == nullptr) {
    std::byte ignored[256];
    ssize_t got = 0;
    while ((got = recv(sockets_[index].fd(), ignored, sizeof(ignored), 0)) > 0) {
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) lost = loss_text(rank, "closed its connection");
  }
  bool moved = true;
  while (moved) {
    Engine::Guard guard(*engine_);
    moved = engine_->poll();
    if (moved) continue;
    if (tcp_links_[index] != nullptr && tcp_links_[index]->closed()) {
      guard.lock().unlock();
      lost = loss_text(rank, tcp_links_[index]->close_reason());
      guard.lock().lock();
    }
    if (!lost.empty()) engine_->lose_peer(rank, lost);
    engine_->wake_waiters();
  }
}

void Mesh::expire(Clock::time_point now) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const auto current = it++;
    if (current->second.deadline <= now) drop(current->first, "no answer within the handshake's time");
  }
  refresh_connect_states();
  Status late;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kConnecting && now >= started_ + options_.timeout) {
      std::string text;
      for (int r = 0; r < options_.world_size; ++r) {
        if (rendezvous_.phase_of(r) == Rendezvous::PeerPhase::kUp) continue;
        text += (text.empty() ? "rank " : ", rank ") + std::to_string(r) + " (" + rendezvous_.describe(r) + ")";
      }
      late = deadline_exceeded("group '" + options_.group_name + "' was not connected within " +
                               std::to_string(options_.timeout.count()) + " ms; missing: " + text);
    }
  }
  if (!late.ok()) fail(late);
  Engine::Guard guard(*engine_);
  engine_->expire_operations(now);
}

void Mesh::refresh_connect_states() {
  std::vector<std::pair<int, std::string>> states;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kReady) return;
    for (int r = 0; r < options_.world_size; ++r) {
      if (rendezvous_.phase_of(r) != Rendezvous::PeerPhase::kUp) states.emplace_back(r, rendezvous_.describe(r));
    }
  }
  Engine::Guard guard(*engine_);
  for (auto& [rank, text] : states) engine_->set_connect_state(rank, std::move(text));
}

}  // namespace qx::collectives
