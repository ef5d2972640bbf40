#include "quincunx/collectives/point_to_point.h"

#include <algorithm>
#include <cstring>

#include "quincunx/collectives/group.h"

namespace qx::collectives {
namespace {

const Call& call_of(const OperationPtr& operation) { return operation->description().call; }
int peer_of(const OperationPtr& operation) { return operation->description().peer; }

}  // namespace

void PointToPoint::send(OperationPtr operation, const Buffer& buffer) {
  const int peer = peer_of(operation);
  auto state = std::make_unique<Send>(Send{std::move(operation), buffer, next_id_++});
  Send& added = *state;
  sends_.push_back(std::move(state));
  if (group_.is_lost(peer)) return on_peer_lost(peer);
  if (group_.engine().peer_state(group_.world_rank(peer)) == Engine::PeerState::kUp) announce(added);
}

void PointToPoint::announce(Send& send) {
  Engine& engine = group_.engine();
  FrameHeader header = call_of(send.operation).header(group_.id(), send.id);
  const int64_t size = send.buffer.size_bytes();
  const bool small = size <= kInlineBytes;
  header.kind = small ? FrameKind::kSend : FrameKind::kSendRequest;
  send.announced = true;
  const auto* data = static_cast<const std::byte*>(send.buffer.data);
  engine.post(group_.world_rank(peer_of(send.operation)), header, {data, small ? static_cast<size_t>(size) : 0});
  if (small) {
    const OperationPtr done = send.operation;
    sends_.remove_if([&](const auto& other) { return other.get() == &send; });
    engine.end(done, ok_status());
  }
  engine.flush();
}

bool PointToPoint::fits(const Receive& receive, int source, int32_t tag) {
  const int wanted = peer_of(receive.operation);
  return (wanted < 0 || wanted == source) && call_of(receive.operation).root == tag;
}

void PointToPoint::receive(OperationPtr operation, const Buffer& buffer) {
  Receive receive{std::move(operation), buffer};
  const int peer = peer_of(receive.operation);
  const auto message = std::find_if(arrived_.begin(), arrived_.end(), [&](const Arrived& candidate) {
    return fits(receive, candidate.source, candidate.header.root_or_tag);
  });
  if (message != arrived_.end()) {
    const Arrived found = std::move(*message);
    arrived_.erase(message);
    match(std::move(receive), found);
    return group_.engine().flush();
  }
  receives_.push_back(std::move(receive));
  if (peer >= 0 && group_.is_lost(peer)) on_peer_lost(peer);
}

void PointToPoint::grant_or_refuse(int rank, FrameKind kind, uint64_t id, const std::string& text) {
  FrameHeader header;
  header.kind = kind;
  header.group = group_.id();
  header.sequence = id;
  group_.engine().post(group_.world_rank(rank), header, std::as_bytes(std::span(text)));
}

void PointToPoint::match(Receive receive, const Arrived& message) {
  const Call sent = call_from_frame(message.header, {});
  const Call& wanted = call_of(receive.operation);
  const bool small = message.header.kind == FrameKind::kSend;
  if (sent.dtype != wanted.dtype || sent.count != wanted.count) {
    const std::string text = "rank " + std::to_string(message.source) + " called " + sent.to_string() + ", rank " +
                             std::to_string(group_.rank()) + " called " + wanted.to_string();
    if (!small) grant_or_refuse(message.source, FrameKind::kSendRefused, message.header.sequence, text);
    return group_.engine().end(std::move(receive.operation),
                               invalid_argument("send and recv differ in size or dtype: " + text), message.source);
  }
  if (!small) {
    grant_or_refuse(message.source, FrameKind::kSendReady, message.header.sequence);
    moving_.emplace(Key{message.source, message.header.sequence}, std::move(receive));
    return;
  }
  if (!message.payload.empty()) std::memcpy(receive.buffer.data, message.payload.data(), message.payload.size());
  group_.engine().end(std::move(receive.operation), ok_status(), message.source);
}

Status PointToPoint::on_frame(int rank, const FrameHeader& header, std::span<const std::byte> payload) {
  if (header.kind == FrameKind::kSendReady || header.kind == FrameKind::kSendRefused) {
    const auto found = std::find_if(sends_.begin(), sends_.end(), [&](const auto& send) {
      return send->id == header.sequence && peer_of(send->operation) == rank && send->announced;
    });
    if (found == sends_.end()) return data_loss("an answer to a send that this rank did not make");
    if (header.kind == FrameKind::kSendReady) {
      (*found)->granted = true;
      return ok_status();
    }
    const OperationPtr refused = (*found)->operation;
    sends_.erase(found);
    group_.engine().end(refused,
                        invalid_argument("send and recv differ in size or dtype: " +
                                         std::string(reinterpret_cast<const char*>(payload.data()), payload.size())));
    return ok_status();
  }
  const auto dtype_bytes = dtype_size_bytes(static_cast<DType>(header.dtype));
  if (header.kind == FrameKind::kSend && header.payload_bytes != header.count * dtype_bytes) {
    return data_loss("a send whose payload is not its count");
  }
  Arrived message{rank, header, {payload.begin(), payload.end()}};
  const auto waiting = std::find_if(receives_.begin(), receives_.end(),
                                    [&](const Receive& receive) { return fits(receive, rank, header.root_or_tag); });
  if (waiting == receives_.end()) {
    arrived_.push_back(std::move(message));
    return ok_status();
  }
  Receive receive = std::move(*waiting);
  receives_.erase(waiting);
  match(std::move(receive), message);
  return ok_status();
}

Result<std::optional<int64_t>> PointToPoint::on_stream(int rank, const FrameHeader& header, Link& link, int64_t limit) {
  const auto found = moving_.find({rank, header.sequence});
  if (found == moving_.end()) return std::optional<int64_t>();
  Receive& receive = found->second;
  const int64_t missing = receive.buffer.size_bytes() - receive.received_bytes;
  if (limit > missing) return data_loss("more data than the send announced");
  const auto taken = static_cast<int64_t>(
      link.read(static_cast<std::byte*>(receive.buffer.data) + receive.received_bytes, static_cast<size_t>(limit)));
  receive.received_bytes += taken;
  if (taken == missing) {
    const OperationPtr done = receive.operation;
    moving_.erase(found);
    group_.engine().end(done, ok_status(), rank);
  }
  return std::optional<int64_t>(taken);
}

std::optional<OutgoingFrame> PointToPoint::next_frame(int rank) {
  for (const auto& owned : sends_) {
    Send* send = owned.get();
    if (!send->granted || peer_of(send->operation) != rank) continue;
    const int64_t left = send->buffer.size_bytes() - send->sent_bytes;
    OutgoingFrame frame;
    frame.header.kind = FrameKind::kSendData;
    frame.header.group = group_.id();
    frame.header.sequence = send->id;
    frame.bytes = {static_cast<const std::byte*>(send->buffer.data) + send->sent_bytes,
                   static_cast<size_t>(std::min(left, kMaxStreamBytes))};
    frame.owner = send;
    frame.sent = [this, send, size = static_cast<int64_t>(frame.bytes.size())] {
      send->sent_bytes += size;
      if (send->sent_bytes < send->buffer.size_bytes()) return;
      const OperationPtr done = send->operation;
      sends_.remove_if([&](const auto& other) { return other.get() == send; });
      group_.engine().end(done, ok_status());
    };
    return frame;
  }
  return std::nullopt;
}

void PointToPoint::fail(const Status& status) {
  Engine& engine = group_.engine();
  const auto sends = std::move(sends_);
  const auto receives = std::move(receives_);
  const auto moving = std::move(moving_);
  sends_.clear();
  receives_.clear();
  moving_.clear();
  arrived_.clear();
  for (const auto& send : sends) {
    engine.release(send.get());
    engine.end(send->operation, status);
  }
  for (const auto& receive : receives) engine.end(receive.operation, status);
  for (const auto& [key, receive] : moving) engine.end(receive.operation, status);
}

void PointToPoint::on_peer_up(int rank) {
  std::vector<Send*> waiting;
  for (const auto& send : sends_) {
    if (!send->announced && peer_of(send->operation) == rank) waiting.push_back(send.get());
  }
  for (Send* send : waiting) announce(*send);
}

void PointToPoint::on_peer_lost(int rank) {
  OperationPtr needing;
  for (const auto& send : sends_) {
    if (peer_of(send->operation) == rank) needing = send->operation;
  }
  for (const auto& receive : receives_) {
    if (peer_of(receive.operation) == rank) needing = receive.operation;
  }
  for (const auto& [key, receive] : moving_) {
    if (key.first == rank) needing = receive.operation;
  }
  if (needing) group_.fail(unavailable(needing->label() + ": " + group_.describe_peer(rank)), true);
}

OperationPtr PointToPoint::first_due_by(Clock::time_point time) const {
  for (const auto& send : sends_) {
    if (send->operation->deadline() <= time) return send->operation;
  }
  for (const auto& receive : receives_) {
    if (receive.operation->deadline() <= time) return receive.operation;
  }
  for (const auto& [key, receive] : moving_) {
    if (receive.operation->deadline() <= time) return receive.operation;
  }
  return nullptr;
}

}  // namespace qx::collectives
