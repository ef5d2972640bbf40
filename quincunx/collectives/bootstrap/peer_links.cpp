#include "quincunx/collectives/bootstrap/peer_links.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "quincunx/collectives/security/secure_link.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// Where more addresses are to be tried, one that swallows packets must not hold up the others.
constexpr milliseconds kConnectTimeWithOthers{300};
constexpr milliseconds kConnectTime{3000};
// After a knock, the peer has this long to connect.
constexpr milliseconds kKnockTime{3000};
constexpr milliseconds kFirstBackoff{20};
constexpr milliseconds kLongestBackoff{1000};

}  // namespace

PeerLinks::PeerLinks(EventLoop& loop, Engine& engine, RankRecord own, uint64_t job_id,
                     std::shared_ptr<const Credentials> credentials, Needs needs)
    : loop_(loop),
      engine_(engine),
      own_(std::move(own)),
      job_id_(job_id),
      credentials_(std::move(credentials)),
      needs_(std::move(needs)) {}

PeerLinks::~PeerLinks() {
  for (const auto& [rank, peer] : tcp_peers_) loop_.forget(peer.socket.fd());
}

void PeerLinks::use_memory(std::shared_ptr<HostMemory> memory, std::unique_ptr<Segment> own) {
  memory_ = std::move(memory);
  own_segment_ = std::move(own);
}

// --- under the engine's lock

void PeerLinks::want(int rank) {
  if (memory_ && memory_->has_joined(rank)) return attach_memory(rank, true);
  loop_.post([this, rank] { begin(rank); });
}

void PeerLinks::look() {
  if (!own_segment_) return;
  for (const int rank : own_segment_->take_callers()) {
    if (!engine_.has_link(rank)) attach_memory(rank, false);
  }
}

void PeerLinks::attach_memory(int rank, bool is_caller) {
  auto segment = Segment::map(*memory_, rank);
  if (!segment.ok()) return lose_soon(rank, segment.status());
  if (is_caller) {
    (*segment)->call(own_.rank);
    if (memory_->has_left(rank)) lose_soon(rank, not_found(std::string(Engine::kHasLeft)));
  }
  engine_.attach_link(rank, std::make_unique<SharedMemoryLink>(*own_segment_, std::move(*segment), own_.rank, rank));
}

void PeerLinks::leave() {
  leaves_ = true;
  if (memory_) memory_->leave(own_.rank);
}

void PeerLinks::lose_soon(int rank, const Status& status) {
  loop_.post([this, rank, status] { on_no_record(rank, status); });
}

// --- the loop's thread

bool PeerLinks::has_link(int rank) {
  const Engine::Guard guard(engine_);
  return engine_.has_link(rank);
}

void PeerLinks::tell(int rank, std::string text) {
  const Engine::Guard guard(engine_);
  engine_.set_connect_state(rank, std::move(text));
}

void PeerLinks::begin(int rank) {
  if (attempts_.contains(rank) || has_link(rank)) return;
  attempts_[rank] = {};
  tell(rank, "asking for its address");
  needs_.resolve(rank, false);
}

void PeerLinks::on_record(int rank, const RankRecord& record) {
  const auto found = attempts_.find(rank);
  if (found == attempts_.end() || found->second.stream) return;
  Attempt& attempt = found->second;
  attempt.record = record;
  attempt.endpoints = record.endpoints_for(own_);
  attempt.candidate = 0;
  // Asked afresh, after a failure: the next attempt is due at its time.
  if (!std::exchange(attempt.is_resolved, true)) connect(rank);
}

void PeerLinks::on_no_record(int rank, const Status& status) {
  attempts_.erase(rank);
  // Whoever shows it names the rank.
  const std::string name = "rank " + std::to_string(rank) + " ";
  const std::string& text = status.message();
  const Engine::Guard guard(engine_);
  if (status.code() == StatusCode::kNotFound)
    engine_.part_from(rank);
  else
    engine_.lose_peer(rank, text.starts_with(name) ? text.substr(name.size()) : text);
  engine_.wake_waiters();
}

void PeerLinks::connect(int rank) {
  Attempt& attempt = attempts_[rank];
  if (attempt.endpoints.empty()) return on_failure(rank, "it has no address for other hosts");
  const std::string& endpoint = attempt.endpoints[attempt.candidate];
  const bool has_others = attempt.candidate + 1 < attempt.endpoints.size();
  attempt.due = Clock::now() + (has_others ? kConnectTimeWithOthers : kConnectTime);
  tell(rank, "connecting to " + endpoint);
  Identity identity;
  identity.purpose = Purpose::kLink;
  identity.connects = true;
  identity.rank = own_.rank;
  identity.peer_rank = rank;
  identity.job_id = job_id_;
  identity.token = attempt.record.token;
  Stream::Events events;
  events.opened = [this, rank] { on_open(rank); };
  events.closed = [this, rank](std::string_view reason) { on_failure(rank, reason); };
  auto stream = Stream::connect(loop_, endpoint, {credentials_, std::move(identity)}, std::move(events));
  if (stream.ok())
    attempt.stream = std::move(*stream);
  else
    on_failure(rank, stream.status().message());
}

void PeerLinks::on_open(int rank) {
  Attempt& attempt = attempts_[rank];
  if (rank < own_.rank) {
    const std::shared_ptr<Stream> stream = std::move(attempt.stream);
    attempts_.erase(rank);
    return attach_tcp(rank, *stream);
  }
  attempt.due = Clock::now() + kKnockTime;
  tell(rank, "waiting for it to connect");
  Stream::Events events;  // the peer closes it
  events.closed = [](std::string_view) {};
  attempt.stream->set_events(std::move(events));
}

void PeerLinks::on_failure(int rank, std::string_view reason) {
  const auto found = attempts_.find(rank);
  if (found == attempts_.end()) return;
  Attempt& attempt = found->second;
  attempt.stream.reset();
  const std::string at = attempt.endpoints.empty() ? "" : " to " + attempt.endpoints[attempt.candidate];
  if (attempt.candidate + 1 < attempt.endpoints.size()) {
    ++attempt.candidate;
    attempt.backoff = milliseconds(0);
    attempt.due = Clock::now();
  } else {
    attempt.candidate = 0;
    attempt.backoff = std::clamp(attempt.backoff * 2, kFirstBackoff, kLongestBackoff);
    attempt.due = Clock::now() + attempt.backoff;
  }
  const bool is_round_over = attempt.candidate == 0;
  tell(rank, "connecting" + at + ": " + std::string(reason));
  // It may have left meanwhile, or have died.
  if (is_round_over) needs_.resolve(rank, true);
}

PeerLinks::Clock::time_point PeerLinks::next_timer() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& [rank, attempt] : attempts_) next = std::min(next, attempt.due);
  return next;
}

void PeerLinks::on_timer(Clock::time_point now) {
  std::vector<int> due;
  for (const auto& [rank, attempt] : attempts_) {
    if (attempt.due <= now) due.push_back(rank);
  }
  for (const int rank : due) {
    if (attempts_[rank].stream)
      on_failure(rank, attempts_[rank].stream->is_open() ? "it did not connect after a knock" : "no answer in time");
    else
      connect(rank);
  }
}

Proof PeerLinks::proof_as_acceptor() const {
  Identity identity;
  identity.purpose = Purpose::kLink;
  identity.rank = own_.rank;
  identity.job_id = job_id_;
  identity.token = own_.token;
  return {credentials_, std::move(identity)};
}

void PeerLinks::adopt(const std::shared_ptr<Stream>& stream) {
  const int rank = stream->peer_rank();
  if (rank < 0 || rank >= own_.world_size || rank == own_.rank || has_link(rank)) return;
  if (rank < own_.rank) return begin(rank);
  attempts_.erase(rank);
  attach_tcp(rank, *stream);
}

void PeerLinks::attach_tcp(int rank, Stream& stream) {
  stream.flush();
  if (stream.has_unsent()) return on_failure(rank, "a fresh connection takes no bytes");
  Stream::Parts parts = stream.release();
  const int fd = parts.socket.fd();
  std::unique_ptr<TcpLink> link;
  if (parts.channel->is_transparent())
    link = std::make_unique<TcpLink>(fd, parts.channel->take_received());
  else
    link = std::make_unique<SecureLink>(fd, std::move(parts.channel));
  tcp_peers_[rank] = {std::move(parts.socket), link.get()};
  {
    Engine::Guard guard(engine_);
    engine_.set_connect_state(rank, "");
    engine_.attach_link(rank, std::move(link));
    engine_.flush();
  }
  loop_.watch(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, [this, rank](uint32_t) { on_link_event(rank); });
  on_link_event(rank);
}

void PeerLinks::on_link_event(int rank) {
  TcpPeer& peer = tcp_peers_[rank];
  std::string lost;
  bool is_closed = false;
  {
    Engine::Guard guard(engine_);
    while (engine_.poll()) {
    }
    is_closed = peer.link->closed();
    if (is_closed && engine_.peer_state(rank) == Engine::PeerState::kUp) {
      lost = peer.link->close_reason();
      // Whoever has heard this rank's goodbye says none.
      const bool has_left = engine_.peer_has_left(rank) || leaves_;
      engine_.lose_peer(rank, "died: its process " + lost + " without leaving");
      if (has_left) lost.clear();
    }
    engine_.wake_waiters();
  }
  if (is_closed) loop_.forget(peer.socket.fd());
  if (!lost.empty()) needs_.lost(rank, lost);
}

void PeerLinks::finish(Clock::time_point deadline) {
  // Closing with unread input resets the connection and loses what is still to be acknowledged.
  for (const auto& [rank, peer] : tcp_peers_) finish_sending(peer.socket, deadline);
}

void PeerLinks::close_descriptors() {
  if (memory_) memory_->close_descriptor();
  for (auto& [rank, attempt] : attempts_) {
    if (attempt.stream) attempt.stream->close_descriptor();
  }
  for (auto& [rank, peer] : tcp_peers_) peer.socket.reset();
}

}  // namespace qx::collectives
