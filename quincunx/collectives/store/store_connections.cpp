#include "quincunx/collectives/store/store_connections.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "quincunx/collectives/bootstrap/random_bits.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// An attempt that gets no answer is given up after this, so that another address has its turn.
constexpr milliseconds kAttemptLimit{5000};
constexpr milliseconds kFirstPause{2};
constexpr milliseconds kLongestPause{1000};
// A rank that has not reached rank 0 for some time looks again after a sixteenth of it.
constexpr int kPausePart = 16;
// A connection that is being made cannot be woken, nor for certain who waits in this process: they look around.
constexpr milliseconds kLookAround{50};
// The server ends a wait itself; its word has this long to arrive. So has its answer to a connection: calls may be
// shorter than what proves the two to each other takes.
constexpr milliseconds kGrace{1000};

// What rank 0 takes at a time: its share of the descriptors that docs/mccl.md promises for 64 ranks.
constexpr size_t kFewestPassing = 2;
constexpr size_t kMostPassing = 128;
constexpr size_t kRanksPerPassing = 32;

// Longer ones would overflow the clock.
constexpr milliseconds kLongestTimeout = std::chrono::hours(24 * 365);

struct Registry {
  std::mutex mutex;
  std::set<StoreConnections*> all;
  std::set<StoreServer*> servers;  // during a fork: several may share one

  void hold() {
    mutex.lock();
    for (StoreConnections* each : all) {
      each->hold_for_fork();
      if (each->server() != nullptr) servers.insert(each->server());
    }
    for (StoreServer* server : servers) server->hold_for_fork();
  }
  void release() {
    for (StoreServer* server : servers) server->release_after_fork();
    servers.clear();
    for (StoreConnections* each : all) each->release_after_fork();
    mutex.unlock();
  }
  void abandon() {
    for (StoreConnections* each : all) each->abandon_in_child();
    release();
  }
};

Registry& registry() {
  // Never destroyed: forks may come after static destructors.
  static auto* instance = [] {
    pthread_atfork([] { registry().hold(); }, [] { registry().release(); }, [] { registry().abandon(); });
    return new Registry;
  }();
  return *instance;
}

bool is_numeric(const std::string& host) { return make_endpoint(host, 1).ok(); }

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// The numeric addresses of a name, in the resolver's order. May take as long as a dead name server takes.
Result<std::vector<std::string>> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0) return unavailable("host \"" + host + "\" cannot be resolved: " + gai_strerror(code));
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (std::find(addresses.begin(), addresses.end(), text) == addresses.end()) addresses.emplace_back(text);
  }
  freeaddrinfo(list);
  if (addresses.empty()) return unavailable("host \"" + host + "\" has no address");
  return addresses;
}

uint16_t port_of(const sockaddr_storage& address) {
  // It stands at the same place for both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// A socket with a port of its own that is not `port`. On the machine of a server that is still to come the kernel could
// otherwise give a client the server's port: it would be connected to itself, and the server find its port taken.
Result<Socket> socket_with_another_port(int family, uint16_t port) {
  std::vector<Socket> unsuitable;  // kept until another port is found
  while (true) {
    Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    own.ss_family = static_cast<sa_family_t>(family);
    socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    auto* const raw = reinterpret_cast<sockaddr*>(&own);
    if (socket.fd() < 0 || bind(socket.fd(), raw, length) != 0 || getsockname(socket.fd(), raw, &length) != 0) {
      return unavailable(std::string("socket: ") + std::strerror(errno));
    }
    if (port_of(own) != port) return socket;
    unsuitable.push_back(std::move(socket));
  }
}

}  // namespace

// A line that no other operation uses, for the time of one.
class StoreConnections::Borrowed {
 public:
  explicit Borrowed(StoreConnections& owner) : owner_(owner) {
    const std::lock_guard lock(owner_.mutex_);
    if (owner_.free_lines_.empty()) {
      owner_.lines_.push_back(std::make_unique<Line>());
      owner_.free_lines_.push_back(owner_.lines_.back().get());
      owner_.free_lines_.back()->client = random_bits();
    }
    line_ = owner_.free_lines_.back();
    owner_.free_lines_.pop_back();
  }
  ~Borrowed() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.free_lines_.push_back(line_);
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Line& operator*() { return *line_; }

 private:
  StoreConnections& owner_;
  Line* line_;
};

StoreConnections::StoreConnections(const NetworkStore::Options& options, uint64_t job_id)
    : options_(options), job_id_(job_id), pid_(getpid()), serves_(options.rank == 0) {
  const std::lock_guard lock(registry().mutex);
  registry().all.insert(this);
}

StoreConnections::~StoreConnections() {
  const std::lock_guard lock(registry().mutex);
  registry().all.erase(this);
  // It would wait for threads of the parent that wait at it.
  if (pid_ != getpid()) static_cast<void>(changed_.release());
}

void StoreConnections::end_all_at(const std::string& host, uint16_t port) {
  const std::lock_guard lock(registry().mutex);
  std::set<std::shared_ptr<StoreServer>> servers;  // several may share one
  for (StoreConnections* each : registry().all) {
    if (each->options_.host != host || each->options_.port != port) continue;
    if (auto server = each->own_server()) servers.insert(std::move(server));
    each->cancel();
  }
  // Whoever waits in one holds it until it has woken, and the port is wanted now.
  for (const auto& server : servers) server->stop();
}

void StoreConnections::abandon_in_child() {
  abandoned_ = true;
  if (server_) server_->abandon_in_child();
  for (const auto& line : lines_) line->socket.reset();
}

std::shared_ptr<StoreConnections> StoreConnections::another() const {
  auto other = std::make_shared<StoreConnections>(options_, job_id_);
  other->serves_ = false;
  const std::lock_guard lock(mutex_);
  other->server_ = server_;
  return other;
}

Status StoreConnections::start() {
  if (options_.host == "localhost") {
    addresses_ = {"127.0.0.1"};
  } else if (is_numeric(options_.host)) {
    addresses_ = {options_.host};
  } else {
    // Not joined: a look-up cannot be ended early.
    std::thread([self = shared_from_this()] { self->look_up(); }).detach();
    return ok_status();
  }
  return serves_ ? serve(addresses_) : ok_status();
}

Status StoreConnections::serve(const std::vector<std::string>& addresses) {
  StoreServer::Options options;
  options.addresses = addresses;
  options.port = options_.port;
  options.credentials = options_.credentials;
  options.max_connections = options_.max_served_connections;
  options.max_passing =
      std::clamp<size_t>(static_cast<size_t>(options_.world_size) / kRanksPerPassing, kFewestPassing, kMostPassing);
  options.identity = {.purpose = Purpose::kStore, .connects = false, .rank = 0, .job_id = job_id_, .token = {}};
  auto server = StoreServer::start(std::move(options));
  const std::lock_guard lock(mutex_);
  if (!server.ok()) {
    failure_ = server.status();
  } else if (!cancelled_) {
    server_ = std::move(server).value();
  }
  return failure_;
}

void StoreConnections::look_up() {
  Result<std::vector<std::string>> resolved = resolve(options_.host);
  if (resolved.ok() && serves_) {
    // Many systems give their own name a loopback address, which ranks on other hosts do not have.
    std::vector<std::string> served = *resolved;
    if (std::all_of(served.begin(), served.end(), is_loopback)) {
      const char* const chosen = std::getenv("QX_MCCL_INTERFACE");
      const Result<std::string> external =
          chosen != nullptr ? Result<std::string>(std::string(chosen)) : first_external_address();
      if (external.ok()) served.push_back(*external);
    }
    static_cast<void>(serve(served));
  }
  const std::lock_guard lock(mutex_);
  if (resolved.ok()) {
    addresses_ = std::move(resolved).value();
  } else {
    failure_ = unavailable("store: " + resolved.status().message());
  }
  changed_->notify_all();
}

void StoreConnections::cancel() {
  std::shared_ptr<StoreServer> server;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    server = std::move(server_);
    // Wakes whoever waits on one; the descriptor itself is closed by its user.
    for (const auto& line : lines_) {
      if (line->socket.fd() >= 0) shutdown(line->socket.fd(), SHUT_RDWR);
    }
    changed_->notify_all();
  }
  if (server) server->wake_callers();
}

std::shared_ptr<StoreServer> StoreConnections::own_server() const {
  const std::lock_guard lock(mutex_);
  return server_;
}

uint16_t StoreConnections::port() const {
  const auto server = own_server();
  return server ? server->port() : 0;
}

size_t StoreConnections::num_served_connections() const {
  const auto server = own_server();
  return server ? server->num_connections() : 0;
}

Status StoreConnections::cancelled() const {
  if (abandoned_ || pid_ != getpid()) {
    return failed_precondition("the store belongs to process " + std::to_string(pid_) + " and was inherited by fork");
  }
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  return cancelled_ ? aborted("the store was closed") : ok_status();
}

Status StoreConnections::lost(const std::string& what) const {
  return unavailable("store of rank 0 at " + options_.host + ":" + std::to_string(options_.port) + ": " + what);
}

Result<StoreResponse> StoreConnections::call(StoreRequest request, milliseconds timeout) {
  QX_RETURN_IF_ERROR(cancelled());
  const Clock::time_point deadline = Clock::now() + std::min(timeout, kLongestTimeout);
  Borrowed borrowed(*this);
  Line& line = *borrowed;
  request.client = line.client;
  request.sequence = ++line.sequence;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    request.wait_ms = std::max<int64_t>(0, left.count());
    QX_ASSIGN_OR_RETURN(const std::vector<std::byte> frame, encode(request));
    const std::shared_ptr<StoreServer> server = own_server();
    Result<StoreResponse> response = server ? call_own(*server, request, deadline) : try_call(line, frame, deadline);
    if (response.ok()) {
      {
        const std::lock_guard lock(mutex_);
        unreached_.reset();
      }
      if (response->code != StatusCode::kDeadlineExceeded) return response;
      return deadline_exceeded("store of rank 0: after " + std::to_string(timeout.count()) + " ms " + response->error);
    }
    hang_up(line);
    QX_RETURN_IF_ERROR(cancelled());
    note_failure(response.status());
    if (!await_turn(deadline)) {
      return deadline_exceeded("after " + std::to_string(timeout.count()) + " ms: " + describe_failure());
    }
  }
}

Result<StoreResponse> StoreConnections::call_own(StoreServer& server, const StoreRequest& request,
                                                 Clock::time_point deadline) const {
  while (true) {
    const Clock::time_point now = Clock::now();
    const std::optional<StoreResponse> response = server.call(request, std::min(deadline, now + kLookAround));
    if (response) return *response;
    QX_RETURN_IF_ERROR(cancelled());
    if (now >= deadline)
      return StoreResponse{StatusCode::kDeadlineExceeded, "not set: " + server.missing_keys(request), 0, {}};
  }
}

Result<StoreResponse> StoreConnections::try_call(Line& line, const std::vector<std::byte>& frame,
                                                 Clock::time_point deadline) {
  // A connection that the server has closed for being idle shows it here, before anything is sent.
  std::byte probe{};
  if (line.socket.fd() >= 0 && recv(line.socket.fd(), &probe, 1, MSG_PEEK | MSG_DONTWAIT) == 0) hang_up(line);
  if (line.socket.fd() < 0) {
    if (!await_turn(deadline)) return deadline_exceeded("");
    QX_RETURN_IF_ERROR(connect(line, deadline));
  }
  line.channel->send(frame);
  QX_RETURN_IF_ERROR(send_outgoing(line, deadline + kGrace));
  while (true) {
    const Result<std::optional<size_t>> size = store_body_bytes(line.received);
    QX_RETURN_IF_ERROR(size.status());
    if (size->has_value() && line.received.size() >= kStoreFrameHeaderBytes + **size) {
      const auto body = std::span<const std::byte>(line.received).subspan(kStoreFrameHeaderBytes, **size);
      QX_ASSIGN_OR_RETURN(StoreResponse response, decode_store_response(body));
      line.received.erase(line.received.begin(),
                          line.received.begin() + static_cast<std::ptrdiff_t>(kStoreFrameHeaderBytes + **size));
      return response;
    }
    QX_RETURN_IF_ERROR(receive_some(line, deadline + kGrace));
  }
}

Status StoreConnections::connect(Line& line, Clock::time_point deadline) {
  std::string address;
  {
    std::unique_lock lock(mutex_);
    changed_->wait_until(lock, deadline, [this] { return cancelled_ || !failure_.ok() || !addresses_.empty(); });
    if (!failure_.ok()) return failure_;
    if (addresses_.empty()) return lost("its name has not been resolved");
    address = addresses_[turn_++ % addresses_.size()];
  }
  const uint16_t own_port = port();
  QX_ASSIGN_OR_RETURN(const Endpoint endpoint, make_endpoint(address, own_port != 0 ? own_port : options_.port));
  const Clock::time_point now = Clock::now();
  return connect_to(line, endpoint, std::max(std::min(deadline, now + kAttemptLimit), now + kGrace));
}

Status StoreConnections::connect_to(Line& line, const Endpoint& endpoint, Clock::time_point deadline) {
  Result<Socket> socket = socket_with_another_port(endpoint.address.ss_family, port_of(endpoint.address));
  if (!socket.ok()) return lost(socket.status().message());
  const auto* const raw = reinterpret_cast<const sockaddr*>(&endpoint.address);
  if (::connect(socket->fd(), raw, endpoint.length) != 0 && errno != EINPROGRESS) return lost(std::strerror(errno));
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return aborted("the store was closed");
    line.socket = std::move(socket).value();
  }
  QX_RETURN_IF_ERROR(wait_for(line, POLLOUT, deadline));
  if (const int error = socket_error(line.socket)) return lost(std::strerror(error));
  const int on = 1;
  setsockopt(line.socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return authenticate(line, deadline);
}

Status StoreConnections::authenticate(Line& line, Clock::time_point deadline) {
  const Identity identity{.purpose = Purpose::kStore,
                          .connects = true,
                          .rank = options_.rank,
                          .peer_rank = 0,
                          .job_id = job_id_,
                          .token = {}};
  QX_ASSIGN_OR_RETURN(line.channel, SecureChannel::create(options_.credentials, identity, deadline));
  line.received.clear();
  while (line.channel->state() == SecureChannel::State::kPending) {
    QX_RETURN_IF_ERROR(send_outgoing(line, deadline));
    QX_RETURN_IF_ERROR(receive_some(line, deadline));
  }
  if (line.channel->state() == SecureChannel::State::kRefused) {
    static_cast<void>(send_outgoing(line, deadline));  // tells it why, where it is still there
    const Status refusal = lost(line.channel->refusal().message());
    const std::lock_guard lock(mutex_);
    if (!unreached_) unreached_ = Unreached{{}, {}, Clock::now(), {}};
    unreached_->refusal = refusal;
    return refusal;
  }
  return send_outgoing(line, deadline);
}

Status StoreConnections::wait_for(const Line& line, short events, Clock::time_point deadline) const {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return deadline_exceeded(lost("it does not answer").message());
    pollfd watched{line.socket.fd(), events, 0};
    const int ready = poll(&watched, 1, static_cast<int>(std::min<int64_t>(left, kLookAround.count())));
    if (ready > 0) return ok_status();
    if (ready < 0 && errno != EINTR) return lost(std::strerror(errno));
    QX_RETURN_IF_ERROR(cancelled());
  }
}

Status StoreConnections::send_outgoing(Line& line, Clock::time_point deadline) {
  const std::vector<std::byte> bytes = line.channel->take_outgoing();
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(line.socket.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
      QX_RETURN_IF_ERROR(wait_for(line, POLLOUT, deadline));
    } else {
      return lost(std::strerror(errno));
    }
  }
  return ok_status();
}

Status StoreConnections::receive_some(Line& line, Clock::time_point deadline) {
  QX_RETURN_IF_ERROR(wait_for(line, POLLIN, deadline));
  std::byte buffer[16384];
  const ssize_t count = recv(line.socket.fd(), buffer, sizeof(buffer), 0);
  if (count == 0) return lost("it closed the connection");
  if (count < 0) return errno == EAGAIN || errno == EINTR ? ok_status() : lost(std::strerror(errno));
  line.channel->receive(std::span(buffer, static_cast<size_t>(count)));
  if (line.channel->state() == SecureChannel::State::kAuthenticated) {
    const std::vector<std::byte> bytes = line.channel->take_received();
    line.received.insert(line.received.end(), bytes.begin(), bytes.end());
  }
  return ok_status();
}

void StoreConnections::hang_up(Line& line) {
  const std::lock_guard lock(mutex_);
  line.socket.reset();
  line.channel.reset();
  line.received.clear();
}

bool StoreConnections::await_turn(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (!unreached_) return true;
  const Clock::time_point turn = unreached_->next_attempt;
  changed_->wait_until(lock, std::min(deadline, turn), [this] { return cancelled_; });
  return cancelled_ || Clock::now() < deadline;
}

void StoreConnections::note_failure(const Status& status) {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (!unreached_) unreached_ = Unreached{{}, {}, now, {}};
  // One that had no turn, or no time to fail, tells nothing new.
  if (status.message().empty()) return;
  if (unreached_->last.ok() || status.code() != StatusCode::kDeadlineExceeded) unreached_->last = status;
  const auto pause = std::clamp<Clock::duration>((now - unreached_->since) / kPausePart, kFirstPause, kLongestPause);
  unreached_->next_attempt = now + pause;
}

std::string StoreConnections::describe_failure() const {
  const std::lock_guard lock(mutex_);
  if (!unreached_ || unreached_->last.ok()) return lost("it was not reached").message();
  const Status& refusal = unreached_->refusal;
  if (refusal.ok() || refusal.message() == unreached_->last.message()) return unreached_->last.message();
  return unreached_->last.message() + "; before that: " + refusal.message();
}

Status StoreConnections::trouble() const {
  {
    const std::lock_guard lock(mutex_);
    if (!unreached_) return server_ ? server_->refusal() : ok_status();
  }
  return unavailable(describe_failure());
}

}  // namespace qx::collectives
