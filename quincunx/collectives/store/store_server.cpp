#include "quincunx/collectives/store/store_server.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHandshakeLimit{5000};
constexpr milliseconds kReadLimit{30000};
constexpr size_t kReadBytes = size_t{64} << 10;
constexpr int kBacklog = 1024;
constexpr int kMostBinds = 3;
constexpr std::chrono::microseconds kPauseBetweenBinds{500};
// Before another accept when there was no descriptor for one, and none to be had back.
constexpr milliseconds kAcceptPause{20};
// How long a connection keeps its place where others wait for one: to speak, and, once it has, to prove itself, which
// takes two ways through the network and the other's turn on a core; then, from the last that was heard of it, to read
// its response, to ask for more, and to wait for a value.
constexpr milliseconds kFirstWordTurn{100};
constexpr milliseconds kProofTurn{1000};
constexpr milliseconds kReadTurn{1000};
constexpr milliseconds kIdleTurn{5};
constexpr milliseconds kWaitTurn{25};

Status system_error(const std::string& what) { return unavailable(what + ": " + std::strerror(errno)); }

void watch(const Socket& epoll, int fd, uint32_t events, int operation = EPOLL_CTL_ADD) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll.fd(), operation, fd, &event);
}

void set_option(int fd, int level, int name) {
  const int on = 1;
  setsockopt(fd, level, name, &on, sizeof(on));
}

}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::start(Options options) {
  std::unique_ptr<StoreServer> server(new StoreServer(std::move(options)));
  server->pid_ = getpid();
  server->epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  server->wake_ = Socket(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (server->epoll_.fd() < 0 || server->wake_.fd() < 0) return system_error("store: epoll");
  watch(server->epoll_, server->wake_.fd(), EPOLLIN);
  QX_RETURN_IF_ERROR(server->listen());
  server->thread_ = std::make_unique<std::thread>([raw = server.get()] { raw->run(); });
  return server;
}

StoreServer::~StoreServer() {
  if (pid_ != getpid()) {
    static_cast<void>(thread_.release());   // it does not exist here
    static_cast<void>(changed_.release());  // it would wait for threads of the parent that wait at it
    return;
  }
  stop();
}

void StoreServer::stop() {
  if (!thread_) return;
  stop_ = true;
  wake();
  thread_->join();
  thread_.reset();
  const std::lock_guard held(busy_);
  listeners_.clear();
  connections_.clear();
}

void StoreServer::wake() {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.fd(), &one, sizeof(one)));
}

void StoreServer::abandon_in_child() {
  listeners_.clear();
  for (auto& [fd, connection] : connections_) connection.socket.reset();
  epoll_.reset();
  wake_.reset();
}

Status StoreServer::listen() {
  port_ = options_.port;
  Status failure;
  for (const std::string& address : options_.addresses) {
    const Status status = listen_at(address);
    if (status.code() == StatusCode::kNotFound) {
      failure = status;
      continue;
    }
    QX_RETURN_IF_ERROR(status);
  }
  if (listeners_.empty()) return unavailable("store: " + failure.message());
  for (const Socket& listener : listeners_) watch(epoll_, listener.fd(), EPOLLIN);
  return ok_status();
}

// kNotFound where the address is not of this machine.
Status StoreServer::listen_at(const std::string& address) {
  QX_ASSIGN_OR_RETURN(const Endpoint endpoint, make_endpoint(address, port_));
  Socket socket(::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) return system_error("store: socket");
  set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR);
  if (endpoint.address.ss_family == AF_INET6) set_option(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY);
  const auto* raw = reinterpret_cast<const sockaddr*>(&endpoint.address);
  int failed = bind(socket.fd(), raw, endpoint.length);
  // A client's socket may be given the port for a moment, until it has looked.
  for (int i = 0; i < kMostBinds && failed != 0 && errno == EADDRINUSE; ++i) {
    std::this_thread::sleep_for(kPauseBetweenBinds);
    failed = bind(socket.fd(), raw, endpoint.length);
  }
  if (failed != 0 || ::listen(socket.fd(), kBacklog) != 0) {
    if (errno == EADDRNOTAVAIL) return not_found(address + " is not an address of this machine, where rank 0 runs");
    if (errno == EADDRINUSE) {
      return unavailable("store: port " + std::to_string(port_) + " of " + address +
                         " is taken by another process; give the job another one");
    }
    return system_error("store: cannot listen on " + endpoint.to_string());
  }
  Endpoint bound;
  bound.length = sizeof(bound.address);
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound.address), &bound.length);
  // The port stands at the same place for both families.
  port_ = ntohs(reinterpret_cast<const sockaddr_in*>(&bound.address)->sin_port);
  listeners_.push_back(std::move(socket));
  return ok_status();
}

void StoreServer::run() {
  std::vector<epoll_event> events(64);
  int wait_ms = -1;  // computed under the lock; who changes a connection meanwhile wakes this thread
  while (!stop_) {
    const int count = epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), wait_ms);
    const std::lock_guard held(busy_);
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == wake_.fd()) {
        uint64_t wakes = 0;
        static_cast<void>(!read(fd, &wakes, sizeof(wakes)));
        continue;
      }
      const auto listener =
          std::find_if(listeners_.begin(), listeners_.end(), [fd](const Socket& socket) { return socket.fd() == fd; });
      if (listener != listeners_.end()) {
        admit(*listener);
        continue;
      }
      const auto found = connections_.find(fd);
      if (found == connections_.end()) continue;
      if (!on_event(found->second, events[static_cast<size_t>(i)].events)) close(fd);
    }
    expire(Clock::now());
    take_turns(Clock::now());
    wait_ms = milliseconds_to_next_event(Clock::now());
  }
}

void StoreServer::admit(const Socket& listener) {
  // Called although it is full: somebody waits.
  if (num_passing(Clock::now()) >= options_.max_passing) return set_full(true);
  while (num_passing(Clock::now()) < options_.max_passing) {
    if (connections_.size() >= options_.max_connections) make_room(Clock::now());
    Result<Socket> accepted = accept_from(listener);
    if (!accepted.ok()) {
      // Out of descriptors: the backlog waits until a connection has gone.
      if (accepted.status().code() == StatusCode::kNotFound) return;
      if (connections_.empty())
        std::this_thread::sleep_for(kAcceptPause);
      else
        make_room(Clock::now());
      return;
    }
    Connection connection;
    connection.last_used = Clock::now();
    auto channel = SecureChannel::create(options_.credentials, options_.identity, Clock::now() + kHandshakeLimit);
    if (!channel.ok()) {
      ++num_dropped_;
      continue;
    }
    connection.channel = std::move(channel).value();
    connection.socket = std::move(accepted).value();
    const int fd = connection.socket.fd();
    set_option(fd, IPPROTO_TCP, TCP_NODELAY);
    watch(epoll_, fd, EPOLLIN | EPOLLRDHUP);
    connections_.emplace(fd, std::move(connection));
    num_connections_ = connections_.size();
  }
}

// Those whose turn is over go first, then those that wait for a value: whoever is on its way to one stays.
void StoreServer::make_room(Clock::time_point now) {
  const auto key = [now](const Connection& each) {
    const bool has_turn = !each.waiting && turn_ends(each) > now;
    return std::tuple(has_turn, each.waiting.has_value(), each.last_used);
  };
  const auto first = std::min_element(connections_.begin(), connections_.end(),
                                      [&](const auto& a, const auto& b) { return key(a.second) < key(b.second); });
  close(first->first);
}

void StoreServer::set_full(bool full) {
  is_full_ = full;
  for (const Socket& listener : listeners_) watch(epoll_, listener.fd(), full ? 0 : uint32_t{EPOLLIN}, EPOLL_CTL_MOD);
}

StoreServer::Clock::time_point StoreServer::turn_ends(const Connection& connection) {
  if (connection.channel->state() == SecureChannel::State::kPending) {
    const auto came = connection.channel->deadline() - kHandshakeLimit;
    return came + (connection.has_spoken ? kProofTurn : kFirstWordTurn);
  }
  if (connection.waiting) return connection.last_used + kWaitTurn;
  return connection.last_used + (connection.outgoing.empty() ? kIdleTurn : kReadTurn);
}

size_t StoreServer::num_passing(Clock::time_point now) const {
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), [now](const auto& entry) {
    return !entry.second.waiting || turn_ends(entry.second) > now;
  }));
}

void StoreServer::take_turns(Clock::time_point now) {
  if (!is_full_) return;
  if (num_passing(now) >= options_.max_passing) {
    const auto first = std::min_element(connections_.begin(), connections_.end(), [](const auto& a, const auto& b) {
      const auto key = [](const Connection& each) { return std::pair(each.waiting.has_value(), turn_ends(each)); };
      return key(a.second) < key(b.second);
    });
    if (first->second.waiting || turn_ends(first->second) > now) return;
    close(first->first);
  }
  set_full(false);
}

bool StoreServer::on_event(Connection& connection, uint32_t events) {
  if ((events & EPOLLOUT) != 0 && !flush(connection)) return false;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0) return true;
  const bool open = read_some(connection);
  using State = SecureChannel::State;
  const State state = connection.channel->state();
  if (state == State::kRefused) {
    ++num_dropped_;
    note_refusal(*connection.channel);
    flush(connection);  // tells it why
    return false;
  }
  if (state == State::kAuthenticated && !take_requests(connection)) {
    ++num_dropped_;
    return false;
  }
  return flush(connection) && open;
}

void StoreServer::note_refusal(const SecureChannel& channel) {
  if (channel.peer_rank() < 0) return;
  const std::lock_guard lock(refusal_mutex_);
  ++num_refused_;
  refusal_ = channel.refusal();
}

Status StoreServer::refusal() const {
  const std::lock_guard lock(refusal_mutex_);
  if (refusal_.ok()) return refusal_;
  return unavailable("of connections that did not prove themselves, " + std::to_string(num_refused_) +
                     " until now, the last: " + refusal_.message());
}

// False at the end of the stream.
bool StoreServer::read_some(Connection& connection) {
  std::byte buffer[kReadBytes];
  while (true) {
    const ssize_t count = recv(connection.socket.fd(), buffer, sizeof(buffer), 0);
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (count == 0) return false;
    connection.last_used = Clock::now();  // a request may take longer to arrive than an idle connection is kept
    connection.has_spoken = true;
    connection.channel->receive(std::span(buffer, static_cast<size_t>(count)));
    if (connection.channel->state() != SecureChannel::State::kAuthenticated) {
      if (connection.channel->state() == SecureChannel::State::kRefused) return true;
      continue;
    }
    const std::vector<std::byte> bytes = connection.channel->take_received();
    connection.received.insert(connection.received.end(), bytes.begin(), bytes.end());
    if (connection.received.size() > kMaxStoreMessageBytes + kReadBytes) return true;  // the parser refuses it
  }
}

// False where the peer does not speak the protocol.
bool StoreServer::take_requests(Connection& connection) {
  size_t position = 0;
  while (!connection.waiting) {
    const auto rest = std::span<const std::byte>(connection.received).subspan(position);
    const Result<std::optional<size_t>> size = store_body_bytes(rest);
    if (!size.ok()) return false;
    if (!size->has_value() || rest.size() < kStoreFrameHeaderBytes + **size) break;
    const Result<StoreRequest> request = decode_store_request(rest.subspan(kStoreFrameHeaderBytes, **size));
    if (!request.ok()) return false;
    // A client sends its next request after the whole response to the last: others could make it keep any number.
    if (!connection.outgoing.empty()) return false;
    position += kStoreFrameHeaderBytes + **size;
    connection.last_used = Clock::now();
    answer(connection, *request);
    flush(connection);  // what fails here is seen by epoll
  }
  connection.received.erase(connection.received.begin(),
                            connection.received.begin() + static_cast<std::ptrdiff_t>(position));
  // What waits behind a request that waits is a flood.
  return !connection.waiting || connection.received.empty();
}

void StoreServer::answer(Connection& connection, const StoreRequest& request) {
  const std::optional<StoreResponse> response = table_.apply(request);
  if (response) {
    respond(connection, *response);
    if (request.changes_the_store()) answer_waiting();
    return;
  }
  connection.waiting = request;
  connection.wait_until = Clock::now() + milliseconds(std::clamp<int64_t>(request.wait_ms, 0, int64_t{1} << 40));
}

bool StoreServer::answer_waiting() {
  changed_->notify_all();
  bool any = false;
  for (auto& [fd, connection] : connections_) {
    if (!connection.waiting) continue;
    const std::optional<StoreResponse> response = table_.apply(*connection.waiting);
    if (!response) continue;
    connection.waiting.reset();
    connection.last_used = Clock::now();
    respond(connection, *response);
    flush(connection);  // what fails here is seen by epoll
    any = true;
  }
  return any;
}

std::optional<StoreResponse> StoreServer::call(const StoreRequest& request, Clock::time_point wait_until) {
  std::unique_lock lock(busy_);
  std::optional<StoreResponse> response = table_.apply(request);
  if (!response) {
    changed_->wait_until(lock, wait_until);
    response = table_.apply(request);
  }
  // The thread sees to it that those who got an answer do not stay for ever.
  if (response && request.changes_the_store() && answer_waiting()) wake();
  return response;
}

std::string StoreServer::missing_keys(const StoreRequest& request) {
  const std::lock_guard lock(busy_);
  return table_.missing_keys(request);
}

void StoreServer::respond(Connection& connection, const StoreResponse& response) {
  Result<std::vector<std::byte>> frame = encode(response);
  if (!frame.ok()) {
    frame = encode(StoreResponse{StatusCode::kInvalidArgument, "values: " + frame.status().message(), 0, {}});
  }
  connection.channel->send(*frame);
}

bool StoreServer::flush(Connection& connection) {
  const std::vector<std::byte> bytes = connection.channel->take_outgoing();
  connection.outgoing.insert(connection.outgoing.end(), bytes.begin(), bytes.end());
  size_t sent = 0;
  while (sent < connection.outgoing.size()) {
    const ssize_t count = ::send(connection.socket.fd(), connection.outgoing.data() + sent,
                                 connection.outgoing.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return false;
    if (count <= 0) break;
    sent += static_cast<size_t>(count);
  }
  connection.outgoing.erase(connection.outgoing.begin(),
                            connection.outgoing.begin() + static_cast<std::ptrdiff_t>(sent));
  const uint32_t events = EPOLLIN | EPOLLRDHUP | (connection.outgoing.empty() ? 0u : uint32_t{EPOLLOUT});
  watch(epoll_, connection.socket.fd(), events, EPOLL_CTL_MOD);
  return true;
}

void StoreServer::close(int fd) {
  connections_.erase(fd);
  num_connections_ = connections_.size();
}

// A client that does not read its response has longer.
StoreServer::Clock::time_point StoreServer::idle_until(const Connection& connection) const {
  return connection.last_used + (connection.outgoing.empty() ? options_.idle_limit : kReadLimit);
}

void StoreServer::expire(Clock::time_point now) {
  std::vector<int> ended;
  for (auto& [fd, connection] : connections_) {
    if (connection.channel->state() == SecureChannel::State::kPending) {
      if (connection.channel->deadline() > now) continue;
      ++num_dropped_;
      ended.push_back(fd);
    } else if (connection.waiting) {
      if (connection.wait_until > now) continue;
      const std::string keys = table_.missing_keys(*connection.waiting);
      connection.waiting.reset();
      connection.last_used = now;
      respond(connection, {StatusCode::kDeadlineExceeded, "not set: " + keys, 0, {}});
      if (!flush(connection)) ended.push_back(fd);
    } else if (idle_until(connection) <= now) {
      ended.push_back(fd);
    }
  }
  for (const int fd : ended) close(fd);
}

int StoreServer::milliseconds_to_next_event(Clock::time_point now) const {
  if (connections_.empty()) return -1;
  Clock::time_point next = now + std::chrono::hours(1);
  for (const auto& [fd, connection] : connections_) {
    const bool pending = connection.channel->state() == SecureChannel::State::kPending;
    const Clock::time_point own = pending              ? connection.channel->deadline()
                                  : connection.waiting ? connection.wait_until
                                                       : idle_until(connection);
    next = std::min(next, own);
    if (is_full_ && turn_ends(connection) > now) next = std::min(next, turn_ends(connection));
  }
  return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<milliseconds>(next - now).count()));
}

}  // namespace qx::collectives
