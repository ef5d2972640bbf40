#include "quincunx/collectives/bootstrap/mesh.h"

#include <linux/sockios.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "quincunx/collectives/bootstrap/fork_registry.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

constexpr size_t kTokenBytes = 32;
// A connection that has not said who it is after this long is dropped.
constexpr milliseconds kHandshakeTimeout{10000};
// One look into the store; also how late an end of the store thread can be.
constexpr milliseconds kFetchSlice{20};
constexpr milliseconds kStorePause{20};
// The socket thread's look at deadlines while operations run, and otherwise.
constexpr milliseconds kBusyTick{50};
constexpr milliseconds kIdleTick{1000};
// How long a destructor lets the last bytes leave.
constexpr milliseconds kDrainTime{1000};
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

uint64_t hash_text(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

int num_allowed_cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Threads of a library take no signals: they are the program's.
std::unique_ptr<std::thread> start_thread(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto thread = std::make_unique<std::thread>(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

// The destructor may run on one of the threads, from a callback of an operation.
void join(std::unique_ptr<std::thread>& thread) {
  if (!thread || !thread->joinable()) return;
  if (thread->get_id() == std::this_thread::get_id()) thread->detach();
  else thread->join();
}

}  // namespace

Mesh::Mesh(const Options& options, std::shared_ptr<Store> store, PeerRecord own)
    : options_(options), store_(std::move(store)), engine_(std::make_shared<Engine>(options.rank, options.world_size)),
      job_id_(hash_text(options.group_name + "/" + options.generation + "/" + std::to_string(options.world_size))),
      rendezvous_(std::move(own)), sockets_(static_cast<size_t>(options.world_size)),
      tcp_links_(static_cast<size_t>(options.world_size)) {}

Result<std::shared_ptr<Mesh>> Mesh::start(const Options& options, std::shared_ptr<Store> store) {
  PeerRecord own = describe_this_host();
  own.rank = options.rank;
  own.world_size = options.world_size;
  own.token = random_token();
  if (options.world_size == 1) {
    std::shared_ptr<Mesh> alone(new Mesh(options, nullptr, std::move(own)));
    alone->phase_ = Phase::kReady;
    return alone;
  }
  own.is_external = !options.interface_address.empty();
  QX_ASSIGN_OR_RETURN(Listener listener, listen_on(own.is_external ? options.interface_address : "127.0.0.1"));
  own.endpoint = listener.endpoint.to_string();
  std::unique_ptr<Segment> segment;
  if (options.allow_shared_memory) {
    // Without it the ranks use TCP, and statistics_json says so.
    auto created = Segment::create(options.world_size, random_bits());
    if (created.ok()) segment = std::move(*created);
  }
  if (segment) own.segment = segment->address();
  std::shared_ptr<Mesh> mesh(new Mesh(options, std::move(store), std::move(own)));
  mesh->segment_ = std::move(segment);
  if (mesh->segment_) mesh->engine_->use_doorbell(mesh->segment_->doorbell());
  mesh->listeners_.push_back(std::move(listener.socket));
  mesh->epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  mesh->wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (mesh->epoll_.fd() < 0 || mesh->wake_.fd() < 0) return resource_exhausted("no descriptors for an event loop");
  watch(mesh->epoll_, mesh->wake_.fd(), EPOLLIN, watch_tag(Watch::kWake, 0));
  register_for_fork(mesh.get());
  Mesh* self = mesh.get();
  mesh->socket_thread_ = start_thread([self] { self->run_sockets(); });
  mesh->store_thread_ = start_thread([self] { self->run_store(); });
  if (mesh->segment_) mesh->helper_thread_ = start_thread([engine = mesh->engine_] { engine->run_helper(); });
  return mesh;
}

Mesh::~Mesh() {
  if (!engine_->belongs_to_this_process()) return;
  unregister_for_fork(this);
  {
    Engine::Guard guard(*engine_);
    engine_->say_goodbye();
    const Clock::time_point limit = Clock::now() + kDrainTime;
    while (engine_->has_unsent() && Clock::now() < limit) {
      guard.lock().unlock();
      std::this_thread::sleep_for(milliseconds(1));
      guard.lock().lock();
      engine_->flush();
    }
    engine_->stop_helper();
  }
  stop_ = true;
  changed_.notify_all();
  wake_sockets();
  join(store_thread_);
  join(socket_thread_);
  join(helper_thread_);
  // Closing with unread input resets the connection and loses what is still to be acknowledged.
  const Clock::time_point limit = Clock::now() + kDrainTime;
  for (const Socket& socket : sockets_) {
    if (socket.fd() < 0) continue;
    shutdown(socket.fd(), SHUT_WR);
    int unacknowledged = 0;
    while (ioctl(socket.fd(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 1 && Clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
}

void Mesh::abandon_in_child() {
  for (Socket& socket : sockets_) socket.reset();
  for (Socket& listener : listeners_) listener.reset();
  epoll_.reset();
  wake_.reset();
  if (segment_) segment_->close_descriptor();
  static_cast<void>(store_thread_.release());
  static_cast<void>(socket_thread_.release());
  static_cast<void>(helper_thread_.release());
}

Phase Mesh::phase() const {
  const std::lock_guard lock(mutex_);
  return phase_;
}

Status Mesh::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Mesh::fail(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kConnecting) return;
    phase_ = status.code() == StatusCode::kAborted ? Phase::kAborted : Phase::kFailed;
    failure_ = status;
  }
  changed_.notify_all();
  Engine::Guard guard(*engine_);
  engine_->fail_all(status);
  engine_->wake_waiters();
}

void Mesh::give_up(const Status& reason) {
  fail(reason);
  wake_sockets();
}

std::string Mesh::key(const char* kind, int rank) const {
  return "qx.mccl/" + options_.group_name + "/" + options_.generation + "/" + kind + "/" + std::to_string(rank);
}

// --- the store thread

bool Mesh::publish(const std::string& key, const std::string& value) {
  while (!stop_) {
    const Status status = store_->set(key, value);
    if (status.ok()) return true;
    std::unique_lock lock(mutex_);
    rendezvous_.on_store_error(status.message());
    if (phase_ != Phase::kConnecting) return false;
    changed_.wait_for(lock, kStorePause);
  }
  return false;
}

void Mesh::fetch(const Rendezvous::Fetch& wanted) {
  const Result<std::string> value = store_->get(key(wanted.external ? "external" : "record", wanted.rank), kFetchSlice);
  Status status;
  {
    std::unique_lock lock(mutex_);
    if (!value.ok()) {
      const bool absent =
          value.status().code() == StatusCode::kDeadlineExceeded || value.status().code() == StatusCode::kNotFound;
      rendezvous_.on_store_error(absent ? "" : value.status().message());
      // A store that answers at once must not be asked in a busy loop.
      changed_.wait_for(lock, milliseconds(2));
      return;
    }
    status = wanted.external ? rendezvous_.on_external(wanted.rank, *value) : rendezvous_.on_record(wanted.rank, *value);
  }
  if (!status.ok()) fail({status.code(), "group '" + options_.group_name + "': " + status.message()});
  wake_sockets();
}

void Mesh::run_store() {
  if (!publish(key("record", options_.rank), rendezvous_.own().encode())) return;
  while (!stop_) {
    std::optional<Rendezvous::Fetch> wanted;
    bool external = false;
    {
      const std::lock_guard lock(mutex_);
      if (phase_ == Phase::kFailed || phase_ == Phase::kAborted || rendezvous_.store_is_done()) return;
      external = rendezvous_.take_publish_external();
      wanted = rendezvous_.next_fetch();
    }
    if (external) {
      const char* chosen = std::getenv("QX_MCCL_INTERFACE");
      const Result<std::string> address = chosen != nullptr ? Result<std::string>(std::string(chosen)) : first_external_address();
      Result<Listener> listener = address.ok() ? listen_on(*address) : Result<Listener>(address.status());
      if (!listener.ok()) return fail(listener.status());
      const std::string endpoint = listener->endpoint.to_string();
      {
        const std::lock_guard lock(mutex_);
        listeners_.push_back(std::move(listener->socket));
      }
      wake_sockets();
      publish(key("external", options_.rank), endpoint);
    }
    if (wanted) fetch(*wanted);
  }
}

// --- the socket thread

void Mesh::wake_sockets() {
  const uint64_t one = 1;
  if (wake_.fd() >= 0 && write(wake_.fd(), &one, sizeof(one)) < 0) return;  // full: it is awake already
}

void Mesh::run_sockets() {
  std::vector<epoll_event> events(64);
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
    if (!socket.ok()) return;
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
  header.payload_bytes = static_cast<int64_t>(payload.size());
  std::vector<std::byte> frame(kHeaderBytes + static_cast<size_t>(padded_bytes(header.payload_bytes)));
  encode_frame_header(header, std::span<std::byte, kHeaderBytes>(frame.data(), kHeaderBytes));
  std::memcpy(frame.data() + kHeaderBytes, payload.data(), payload.size());
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
      const Status status = on_first_frame(pending, *header, payload, {bytes.begin() + static_cast<long>(size), bytes.end()});
      if (status.ok()) pending_.erase(fd);
      else drop(fd, status.message());
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
  welcome.payload_bytes = kTokenBytes;
  std::vector<std::byte> frame(kHeaderBytes + static_cast<size_t>(padded_bytes(kTokenBytes)));
  encode_frame_header(welcome, std::span<std::byte, kHeaderBytes>(frame.data(), kHeaderBytes));
  std::memcpy(frame.data() + kHeaderBytes, from.token.data(), kTokenBytes);
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
  engine_->set_spin(num_shared_ + 1 <= num_allowed_cpus() ? std::chrono::nanoseconds(kSpin) : std::chrono::nanoseconds(0));
  engine_->attach_peer(rank, std::move(link));
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
