#include "quincunx/collectives/bootstrap/tree_driver.h"

#include <poll.h>

#include <algorithm>

#include "quincunx/collectives/bootstrap/unix_name.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// How long a connection that is to be closed may take to deliver what was sent.
constexpr milliseconds kCloseTime{1000};
// Before another accept when there was no descriptor for one.
constexpr milliseconds kAcceptPause{20};
// That are held at a time, as far as ranks of this host decide it: a parent, three children and one that has just come.
// It is a rank's share of the descriptors that docs/mccl.md promises.
constexpr size_t kMostConnections = 5;
// One that has come and does not say who it is has its place for so long where others wait for one.
constexpr milliseconds kStrangerTime{20};

// Somebody is in the listener's queue.
bool has_caller(const Socket& listener) {
  pollfd watched{listener.fd(), POLLIN, 0};
  return listener.fd() >= 0 && poll(&watched, 1, 0) > 0;
}

}  // namespace

TreeDriver::TreeDriver(EventLoop& loop, std::unique_ptr<TreeNode> node, std::shared_ptr<const Credentials> credentials,
                       Handler handler)
    : loop_(loop), node_(std::move(node)), credentials_(std::move(credentials)), handler_(std::move(handler)) {}

TreeDriver::~TreeDriver() {
  loop_.forget(host_listener_.fd());
  loop_.forget(local_listener_.fd());
}

Status TreeDriver::start() {
  const std::string& local = node_->options().local_endpoint;
  if (local.starts_with('@')) {
    QX_ASSIGN_OR_RETURN(local_listener_, listen_on_name(local));
    watch_listener(local_listener_);
  }
  node_->start(Clock::now());
  drain();
  return ok_status();
}

Proof TreeDriver::proof(bool connects) const {
  Identity identity;
  identity.purpose = Purpose::kBootstrap;
  identity.connects = connects;
  identity.rank = node_->options().rank;
  identity.job_id = node_->options().job_id;
  identity.token = token();
  return {credentials_, std::move(identity)};
}

Stream::Events TreeDriver::events_of(TreeConnection id) {
  Stream::Events events;
  events.opened = [this, id] {
    node_->on_connected(id, Clock::now());
    drain();
  };
  events.received = [this, id](Stream::Bytes bytes) {
    node_->on_bytes(id, bytes, Clock::now());
    drain();
  };
  events.closed = [this, id](std::string_view reason) {
    streams_.erase(id);
    node_->on_closed(id, reason, Clock::now());
    drain();
  };
  return events;
}

void TreeDriver::adopt(std::shared_ptr<Stream> stream) {
  const TreeConnection id = node_->on_accepted(Clock::now());
  stream->set_events(events_of(id));
  streams_[id] = std::move(stream);
  drain();
}

void TreeDriver::watch_listener(const Socket& listener) {
  loop_.watch(listener.fd(), EPOLLIN, [this, &listener](uint32_t) { admit(listener); });
}

bool TreeDriver::has_room() const {
  const size_t num_passing = node_->num_strangers() + closing_.size();
  return streams_.size() + closing_.size() < kMostConnections || num_passing == 0;
}

void TreeDriver::admit(const Socket& listener) {
  // The listener goes when this rank comes to lead its host.
  while (listener.fd() >= 0) {
    if (!has_room()) {
      // The event that was used up comes no second time.
      is_full_ = true;
      next_look_ = std::min(next_look_, Clock::now() + kStrangerTime);
      return;
    }
    Result<Socket> socket = accept_from(listener);
    if (!socket.ok()) {
      // Without descriptors.
      if (socket.status().code() != StatusCode::kNotFound) next_accept_ = Clock::now() + kAcceptPause;
      return;
    }
    auto stream = Stream::accept_local(loop_, std::move(*socket), {});
    if (stream.ok())
      adopt(std::move(*stream));
    else
      ++num_dropped_;
  }
}

void TreeDriver::admit_waiting(Clock::time_point now) {
  if (!has_room()) {
    if (now < next_look_) return;
    next_look_ = now + kStrangerTime;
    if (!has_caller(host_listener_) && !has_caller(local_listener_)) return;
    node_->drop_strangers(now - kStrangerTime);
    drain();
    if (!has_room()) return;
  }
  is_full_ = false;
  next_look_ = Clock::time_point::max();
  admit(host_listener_);
  admit(local_listener_);
}

void TreeDriver::bind_host(const std::string& name) {
  bool won = true;
  if (name.starts_with('@')) {
    Result<Socket> listener = listen_on_name(name);
    won = listener.ok();
    if (won) {
      host_listener_ = std::move(*listener);
      watch_listener(host_listener_);
      // Nobody is sent to the leader's own name.
      loop_.forget(local_listener_.fd());
      local_listener_.reset();
    }
  }
  node_->on_host_bound(won, Clock::now());
}

void TreeDriver::connect(TreeConnection id, const std::string& endpoint) {
  Result<std::shared_ptr<Stream>> stream = Stream::connect(loop_, endpoint, proof(true), events_of(id));
  if (stream.ok())
    streams_[id] = std::move(*stream);
  else
    node_->on_closed(id, stream.status().message(), Clock::now());
}

void TreeDriver::close(TreeConnection id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  std::shared_ptr<Stream> stream = std::move(found->second);
  streams_.erase(found);
  if (!stream->is_open()) return;
  stream->flush();
  if (stream->is_local() && !stream->has_unsent()) return stream->set_events({});
  // Closing TCP with unread input would reset the connection, and what was sent last would be lost.
  Stream* raw = stream.get();
  Stream::Events events;
  events.closed = [this, raw](std::string_view) {
    std::erase_if(closing_, [raw](const Closing& closing) { return closing.stream.get() == raw; });
  };
  stream->set_events(std::move(events));
  if (!stream->has_unsent()) stream->shut_down_sending();
  closing_.push_back({std::move(stream), Clock::now() + kCloseTime});
}

void TreeDriver::carry_out(TreeAction action) {
  switch (action.kind) {
    case TreeAction::Kind::kBindHost: return bind_host(action.endpoint);
    case TreeAction::Kind::kConnect: return connect(action.connection, action.endpoint);
    case TreeAction::Kind::kSend: {
      const auto found = streams_.find(action.connection);
      if (found != streams_.end()) found->second->send(action.bytes);
      return;
    }
    case TreeAction::Kind::kClose: return close(action.connection);
    default: return handler_(std::move(action));
  }
}

void TreeDriver::drain() {
  if (draining_) return;
  draining_ = true;
  while (std::optional<TreeAction> action = node_->take_action()) carry_out(std::move(*action));
  draining_ = false;
}

void TreeDriver::on_root_found(int rank, std::vector<std::string> endpoints) {
  node_->on_root_found(rank, std::move(endpoints), Clock::now());
  drain();
}

void TreeDriver::resolve(int rank, bool afresh) {
  if (afresh) node_->forget_record(rank);
  node_->resolve(rank, Clock::now());
  drain();
}

void TreeDriver::answer(int asker, uint32_t query, std::span<const std::byte> payload) {
  node_->answer(asker, query, payload, Clock::now());
  drain();
}

void TreeDriver::report_dead(int rank, std::string_view reason) {
  node_->report_dead(rank, reason, Clock::now());
  drain();
}

void TreeDriver::leave() {
  node_->leave(Clock::now());
  drain();
}

bool TreeDriver::is_drained() const {
  return std::none_of(closing_.begin(), closing_.end(),
                      [](const Closing& closing) { return closing.stream->has_unsent(); });
}

TreeDriver::Clock::time_point TreeDriver::next_timer() const {
  Clock::time_point next = std::min(node_->next_timer(), next_accept_);
  for (const Closing& closing : closing_) next = std::min(next, closing.deadline);
  if (is_full_) next = std::min(next, has_room() ? Clock::time_point::min() : next_look_);
  return next;
}

void TreeDriver::on_timer(Clock::time_point now) {
  std::erase_if(closing_, [now](const Closing& closing) { return closing.deadline <= now; });
  if (next_accept_ <= now) {
    next_accept_ = Clock::time_point::max();
    is_full_ = true;
  }
  node_->on_timer(now);
  drain();
  if (is_full_) admit_waiting(now);
}

void TreeDriver::close_descriptors() {
  host_listener_.reset();
  local_listener_.reset();
  for (auto& [id, stream] : streams_) stream->close_descriptor();
  for (Closing& closing : closing_) closing.stream->close_descriptor();
}

}  // namespace qx::collectives
