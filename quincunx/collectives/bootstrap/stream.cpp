#include "quincunx/collectives/bootstrap/stream.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "quincunx/collectives/bootstrap/unix_name.h"

namespace qx::collectives {
namespace {

constexpr size_t kReadBytes = 16 << 10;
// What may wait for a peer that does not read.
constexpr size_t kMostUnsentBytes = 16 << 20;
constexpr std::chrono::seconds kProofTime{10};

}  // namespace

Stream::Stream(EventLoop& loop, Socket socket, State state, Events events)
    : loop_(loop), socket_(std::move(socket)), state_(state), events_(std::move(events)) {}

Stream::~Stream() { loop_.forget(socket_.fd()); }

Result<std::shared_ptr<Stream>> Stream::connect(EventLoop& loop, const std::string& endpoint, Proof proof,
                                                Events events) {
  const bool is_local = endpoint.starts_with('@');
  Socket socket;
  if (is_local) {
    QX_ASSIGN_OR_RETURN(socket, connect_to_name(endpoint));
  } else {
    QX_ASSIGN_OR_RETURN(const Endpoint parsed, parse_endpoint(endpoint));
    QX_ASSIGN_OR_RETURN(socket, start_connect(parsed));
  }
  std::shared_ptr<Stream> stream(new Stream(loop, std::move(socket), State::kConnecting, std::move(events)));
  stream->is_local_ = is_local;
  stream->proof_ = std::move(proof);
  stream->watch();
  return stream;
}

std::shared_ptr<Stream> Stream::accept(EventLoop& loop, Socket socket, ProofFor proof_for, Clock::time_point deadline,
                                       Events events) {
  std::shared_ptr<Stream> stream(new Stream(loop, std::move(socket), State::kFirstByte, std::move(events)));
  stream->proof_for_ = std::move(proof_for);
  stream->deadline_ = deadline;
  stream->watch();
  return stream;
}

Result<std::shared_ptr<Stream>> Stream::accept_local(EventLoop& loop, Socket socket, Events events) {
  QX_RETURN_IF_ERROR(check_same_user(socket));
  std::shared_ptr<Stream> stream(new Stream(loop, std::move(socket), State::kOpen, std::move(events)));
  stream->is_local_ = true;
  stream->watch();
  return stream;
}

void Stream::watch() {
  loop_.watch(socket_.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, [weak = weak_from_this()](uint32_t events) {
    // Held while it runs: its owner may let go of it in a callback.
    if (const auto stream = weak.lock()) stream->on_events(events);
  });
}

Status Stream::begin_proof(const Proof& proof) {
  QX_ASSIGN_OR_RETURN(channel_, SecureChannel::create(*proof.credentials, proof.identity,
                                                      std::min(deadline_, Clock::now() + kProofTime)));
  state_ = State::kProving;
  push_raw(channel_->take_outgoing());
  return ok_status();
}

void Stream::tell_opened() {
  // A copy: the callback may set other events.
  const auto opened = events_.opened;
  if (opened) opened();
}

void Stream::tell_received(Bytes bytes) {
  const auto received = events_.received;  // as above
  if (received) received(bytes);
}

Status Stream::on_connected() {
  const int error = socket_error(socket_);
  if (error != 0) return unavailable(std::strerror(error));
  if (is_local_) {
    QX_RETURN_IF_ERROR(check_same_user(socket_));
    state_ = State::kOpen;
    tell_opened();
    return ok_status();
  }
  outgoing_.push_back(std::byte{static_cast<uint8_t>(proof_.identity.purpose)});
  return begin_proof(proof_);
}

void Stream::on_events(uint32_t events) {
  in_event_ = true;
  handle(events);
  in_event_ = false;
  if (state_ != State::kClosed) flush();
}

void Stream::handle(uint32_t events) {
  if (state_ == State::kConnecting) {
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return;
    const Status status = on_connected();
    if (!status.ok()) return close(status.message());
  }
  flush();
  std::byte buffer[kReadBytes];
  while (state_ != State::kClosed && socket_.fd() >= 0) {
    const ssize_t got = recv(socket_.fd(), buffer, sizeof(buffer), 0);
    if (got > 0) {
      on_bytes({buffer, static_cast<size_t>(got)});
      // Less than asked for: nothing is left, and an end of the connection would be among the events.
      const bool is_ending = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
      if (static_cast<size_t>(got) < sizeof(buffer) && !is_ending) return;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    return close(got == 0 ? "the peer closed the connection" : std::strerror(errno));
  }
}

void Stream::on_bytes(Bytes bytes) {
  if (state_ == State::kFirstByte) {
    purpose_ = static_cast<Purpose>(bytes.front());
    std::optional<Proof> proof = proof_for_(purpose_);
    if (!proof) return close("a foreign protocol");
    const Status status = begin_proof(*proof);
    if (!status.ok()) return close(status.message());
    bytes = bytes.subspan(1);
  }
  if (channel_ == nullptr) return tell_received(bytes);
  channel_->receive(bytes);
  push_raw(channel_->take_outgoing());
  if (channel_->state() == SecureChannel::State::kRefused) return close(channel_->refusal().message());
  if (channel_->state() == SecureChannel::State::kPending) return;
  if (state_ == State::kProving) {
    state_ = State::kOpen;
    deadline_ = Clock::time_point::max();
    tell_opened();
    if (state_ != State::kOpen || channel_ == nullptr) return;
  }
  const std::vector<std::byte> received = channel_->take_received();
  if (!received.empty()) tell_received(received);
}

void Stream::send(Bytes bytes) {
  if (state_ != State::kOpen) return;
  if (channel_ == nullptr) return push_raw(bytes);
  channel_->send(bytes);
  push_raw(channel_->take_outgoing());
}

void Stream::push_raw(Bytes bytes) {
  if (bytes.empty() || state_ == State::kClosed) return;
  const bool was_empty = outgoing_.empty();
  outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
  if (was_empty && !in_event_) flush();
  // The peer sees the end of the connection, and so does this side with the next event.
  if (outgoing_.size() > kMostUnsentBytes) shutdown(socket_.fd(), SHUT_RDWR);
}

void Stream::flush() {
  size_t sent = 0;
  while (sent < outgoing_.size()) {
    const ssize_t put = ::send(socket_.fd(), outgoing_.data() + sent, outgoing_.size() - sent, MSG_NOSIGNAL);
    if (put > 0) {
      sent += static_cast<size_t>(put);
      continue;
    }
    if (put < 0 && errno == EINTR) continue;
    // A broken connection is seen, and named, by the reader.
    if (put < 0 && errno != EAGAIN && errno != ENOTCONN) sent = outgoing_.size();
    break;
  }
  outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<long>(sent));
}

void Stream::shut_down_sending() { shutdown(socket_.fd(), SHUT_WR); }

void Stream::close(std::string_view reason) {
  if (state_ == State::kClosed) return;
  flush();  // a peer that is refused is told why
  state_ = State::kClosed;
  loop_.forget(socket_.fd());
  const auto closed = events_.closed;
  if (closed) closed(reason);
}

Stream::Parts Stream::release() {
  loop_.forget(socket_.fd());
  state_ = State::kClosed;
  return {std::move(socket_), std::move(channel_)};
}

}  // namespace qx::collectives
