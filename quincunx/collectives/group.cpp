#include "quincunx/collectives/group.h"

#include <algorithm>

namespace qx::collectives {

Group::Group(Engine& engine, uint64_t id, std::string name, std::vector<int> members)
    : engine_(engine),
      id_(id),
      name_(std::move(name)),
      members_(std::move(members)),
      rank_of_(static_cast<size_t>(engine.world_size()), -1),
      members_state_(members_.size()),
      point_to_point_(*this) {
  for (size_t r = 0; r < members_.size(); ++r) {
    rank_of_[static_cast<size_t>(members_[r])] = static_cast<int>(r);
    if (members_[r] == engine.rank()) rank_ = static_cast<int>(r);
  }
}

void Group::enqueue(OperationPtr operation, std::unique_ptr<Exchange> exchange) {
  operation->sequence = next_sequence_++;
  queue_.push_back({std::move(operation), std::move(exchange)});
  if (queue_.size() == 1) start_next();
}

void Group::start_next() {
  if (queue_.empty() || announced_ || !failure_.ok()) return;
  for (int r = 0; r < size(); ++r) {
    const Engine::PeerState state = engine_.peer_state(world_rank(r));
    if (state == Engine::PeerState::kConnecting) return;
    // A rank that has entered this collective and left may have sent all that is needed.
    if (is_lost(r) && !entry(r, queue_.front().operation->sequence).present) {
      return fail(unavailable(queue_.front().operation->label() + ": " + describe_peer(r)), true);
    }
  }
  const OperationPtr& operation = queue_.front().operation;
  current_sequence_ = operation->sequence;
  announced_ = true;
  begun_ = false;
  Entry& own = entry(rank_, current_sequence_);
  own.present = true;
  own.call = operation->description().call;
  const FrameHeader header = own.call.header(id_, current_sequence_);
  const auto counts = std::as_bytes(std::span(own.call.counts));
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) engine_.post(world_rank(r), header, counts, queue_.front().exchange->inline_input(r));
  }
  engine_.flush();
  begin_if_entered();
}

Status Group::on_call(int rank, const FrameHeader& header, std::span<const std::byte> payload) {
  const uint64_t oldest = queue_.empty() ? next_sequence_ : queue_.front().operation->sequence;
  if (header.sequence < oldest || header.sequence > oldest + 1) {
    return data_loss("a call with sequence " + std::to_string(header.sequence) + ", expected " +
                     std::to_string(oldest));
  }
  Entry& arrived = entry(rank, header.sequence);
  if (arrived.present) return data_loss("a second call with sequence " + std::to_string(header.sequence));
  arrived.present = true;
  arrived.call = call_from_frame(header, payload);
  const auto input = payload.subspan(size_t{header.num_counts} * 8);
  arrived.input.assign(input.begin(), input.end());
  Member& member = members_state_[static_cast<size_t>(rank)];
  member.entered_any = true;
  member.last_sequence = header.sequence;
  member.last_operation = arrived.call.operation;
  begin_if_entered();
  return ok_status();
}

void Group::begin_if_entered() {
  if (!announced_ || begun_) return;
  for (int r = 0; r < size(); ++r) {
    if (!entry(r, current_sequence_).present) return;
  }
  std::vector<const Call*> calls;
  std::vector<std::span<const std::byte>> inputs;
  for (int r = 0; r < size(); ++r) {
    calls.push_back(&entry(r, current_sequence_).call);
    inputs.push_back(entry(r, current_sequence_).input);
  }
  const Status verdict = compare_calls(calls);
  if (!verdict.ok()) {
    return finish({verdict.code(), queue_.front().operation->label() + ": " + verdict.message()});
  }
  begun_ = true;
  const Status status = queue_.front().exchange->begin(inputs);
  if (!status.ok()) return fail(status, true);
  send_credits();
  for (int r = 0; r < size(); ++r) {
    if (queue_.front().exchange->unsent_to(r) > 0) engine_.want_link(world_rank(r));
    make_offers(r);
  }
  send_notices();
  for (int r = 0; r < size() && failure_.ok(); ++r) {
    if (is_lost(r)) on_peer_lost(world_rank(r));
  }
  if (failure_.ok()) finish_if_complete();
}

void Group::finish_if_complete() {
  if (begun_ && queue_.front().exchange->is_complete()) finish(ok_status());
}

void Group::finish(Status status) {
  Pending done = std::move(queue_.front());
  queue_.pop_front();
  bytes_read_in_place_ += done.exchange->bytes_read_in_place();
  for (int r = 0; r < size(); ++r) {
    Entry& used = entry(r, current_sequence_);
    used.present = false;
    used.input.clear();
  }
  announced_ = begun_ = false;
  engine_.end(std::move(done.operation), std::move(status));
  start_next();
}

void Group::fail(const Status& status, bool tell_peers) {
  if (!failure_.ok()) return;
  const bool aborted = status.code() == StatusCode::kAborted;
  failure_ = {aborted ? StatusCode::kAborted : StatusCode::kFailedPrecondition,
              "group '" + name_ + "' takes no further operations: " + status.message()};
  if (tell_peers) {
    FrameHeader header;
    header.kind = FrameKind::kFail;
    header.group = id_;
    header.status_code = static_cast<uint8_t>(status.code());
    const std::string text = status.message().substr(0, static_cast<size_t>(kMaxStoredBytes));
    for (int r = 0; r < size(); ++r) {
      if (r != rank_) engine_.post(world_rank(r), header, std::as_bytes(std::span(text)));
    }
  }
  std::deque<Pending> queue = std::move(queue_);
  queue_.clear();
  announced_ = begun_ = false;
  for (Pending& pending : queue) {
    engine_.release(pending.exchange.get());
    engine_.end(std::move(pending.operation), status);
  }
  point_to_point_.fail(status);
  if (tell_peers) engine_.flush();
}

void Group::close() {
  FrameHeader header;
  header.kind = FrameKind::kGoodbye;
  header.group = id_;
  const bool idle = failure_.ok() && queue_.empty();
  for (int r = 0; r < size() && idle; ++r) {
    if (r != rank_) engine_.post(world_rank(r), header, {});
  }
  fail(aborted("the communicator was destroyed"), !idle);
  engine_.flush();
  engine_.remove_group(*this);
}

bool Group::is_lost(int rank) const {
  return members_state_[static_cast<size_t>(rank)].left ||
         engine_.peer_state(world_rank(rank)) == Engine::PeerState::kLost;
}

void Group::give_up(const OperationState& operation) {
  const auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - operation.description().started);
  std::string text =
      operation.label() + " timed out after " + std::to_string(waited.count()) + " ms on rank " + std::to_string(rank_);
  const Operation kind = operation.description().call.operation;
  if (kind == Operation::kSend || kind == Operation::kRecv) {
    const int peer = operation.description().peer;
    text += kind == Operation::kSend ? ", waiting for the receive of " : ", waiting for the send of ";
    text += peer < 0 ? "any rank" : describe_peer(peer);
    return fail(deadline_exceeded(std::move(text)), true);
  }
  if (!queue_.empty() && queue_.front().operation.get() != &operation) {
    text += ", queued behind " + queue_.front().operation->label();
  }
  fail(deadline_exceeded(text + ", waiting for " + waiting_for()), true);
}

void Group::expire(Clock::time_point now) {
  for (const Pending& pending : queue_) {
    if (pending.operation->deadline() <= now) return give_up(*OperationPtr(pending.operation));
  }
  if (const OperationPtr late = point_to_point_.first_expired(now)) give_up(*late);
}

void Group::on_peer_up(int world_rank) {
  if (group_rank(world_rank) < 0) return;
  start_next();
  point_to_point_.on_peer_up(group_rank(world_rank));
}

bool Group::needs(int rank) const {
  if (queue_.empty()) return false;
  if (!announced_ || !entry(rank, current_sequence_).present) return true;
  const Exchange& exchange = *queue_.front().exchange;
  return begun_ && (exchange.missing_from(rank) > 0 || exchange.unsent_to(rank) > 0);
}

void Group::on_peer_lost(int world_rank) {
  const int rank = group_rank(world_rank);
  if (rank < 0 || !failure_.ok()) return;
  if (needs(rank)) return fail(unavailable(queue_.front().operation->label() + ": " + describe_peer(rank)), true);
  point_to_point_.on_peer_lost(rank);
}

Status Group::on_frame(int world_rank, const FrameHeader& header, std::span<const std::byte> payload) {
  const int rank = group_rank(world_rank);
  if (rank < 0) return data_loss("a frame for group '" + name_ + "' from a rank that is no member");
  switch (header.kind) {
    case FrameKind::kFail: {
      const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
      const auto code = static_cast<StatusCode>(header.status_code);
      fail({code == StatusCode::kOk ? StatusCode::kInternal : code,
            "rank " + std::to_string(rank) + " reported: " + text},
           false);
      return ok_status();
    }
    case FrameKind::kGoodbye:
      members_state_[static_cast<size_t>(rank)].left = true;
      on_peer_lost(world_rank);
      return ok_status();
    case FrameKind::kCall: return failure_.ok() ? on_call(rank, header, payload) : ok_status();
    case FrameKind::kCredit:
      if (begun_ && header.sequence == current_sequence_) queue_.front().exchange->add_credit(rank, header.count);
      return ok_status();
    case FrameKind::kOffer: return failure_.ok() ? on_offer(rank, header, payload) : ok_status();
    case FrameKind::kOfferRefused:
    case FrameKind::kReady:
    case FrameKind::kTaken: return failure_.ok() ? on_answer_to_offer(rank, header) : ok_status();
    case FrameKind::kSend:
    case FrameKind::kSendRequest:
    case FrameKind::kSendReady:
    case FrameKind::kSendRefused: return failure_.ok() ? point_to_point_.on_frame(rank, header, payload) : ok_status();
    default: return data_loss("a frame of kind " + std::to_string(static_cast<int>(header.kind)) + " within a group");
  }
}

Result<std::optional<int64_t>> Group::on_stream(int world_rank, const FrameHeader& header, Link& link, int64_t limit) {
  const int rank = group_rank(world_rank);
  if (rank < 0) return data_loss("data for group '" + name_ + "' from a rank that is no member");
  if (header.kind == FrameKind::kSendData) return point_to_point_.on_stream(rank, header, link, limit);
  // A peer may see all calls before this rank does: its data waits in the link until then.
  if (announced_ && !begun_ && header.sequence == current_sequence_) return std::optional<int64_t>(0);
  if (!begun_ || header.sequence != current_sequence_) return std::optional<int64_t>();
  const int64_t taken = queue_.front().exchange->receive(rank, header.stream, link, limit);
  if (taken < 0) return data_loss("more data than the calls of " + queue_.front().operation->label() + " said");
  send_credits();
  send_notices();
  if (taken > 0) finish_if_complete();
  return std::optional<int64_t>(taken);
}

void Group::send_credits() {
  const std::optional<int64_t> reduced = queue_.front().exchange->take_credit();
  if (!reduced) return;
  FrameHeader header;
  header.kind = FrameKind::kCredit;
  header.group = id_;
  header.sequence = current_sequence_;
  header.count = *reduced;
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) engine_.post(world_rank(r), header, {});
  }
}

std::optional<OutgoingFrame> Group::next_frame(int world_rank) {
  const int rank = group_rank(world_rank);
  if (rank < 0 || rank == rank_) return std::nullopt;
  if (begun_) {
    Exchange* exchange = queue_.front().exchange.get();
    if (const auto chunk = exchange->next_chunk(rank)) {
      OutgoingFrame frame;
      frame.header.kind = FrameKind::kData;
      frame.header.group = id_;
      frame.header.sequence = current_sequence_;
      frame.header.stream = chunk->stream;
      frame.bytes = chunk->bytes;
      frame.owner = exchange;
      frame.sent = [this, exchange, rank, chunk = *chunk] {
        exchange->mark_sent(rank, chunk);
        finish_if_complete();
      };
      return frame;
    }
  }
  return point_to_point_.next_frame(rank);
}

std::string Group::describe_peer(int rank) const {
  const int world = world_rank(rank);
  const std::string name = "rank " + std::to_string(rank);
  switch (engine_.peer_state(world)) {
    case Engine::PeerState::kConnecting: return name + " (not connected: " + engine_.peer_text(world) + ")";
    case Engine::PeerState::kLost: return name + " (" + engine_.peer_text(world) + ")";
    default: break;
  }
  return members_state_[static_cast<size_t>(rank)].left ? name + " (has destroyed its communicator)" : name;
}

std::string Group::state_of(int rank) const {
  if (is_lost(rank) || engine_.peer_state(world_rank(rank)) != Engine::PeerState::kUp) return describe_peer(rank);
  const std::string name = "rank " + std::to_string(rank);
  const Member& member = members_state_[static_cast<size_t>(rank)];
  if (announced_ && entry(rank, current_sequence_).present) {
    return name + " (entered, " + std::to_string(queue_.front().exchange->missing_from(rank)) + " bytes to come, " +
           std::to_string(queue_.front().exchange->unsent_to(rank)) + " to go)";
  }
  if (!member.entered_any) return name + " (connected, has entered no operation)";
  return name + " (not entered; its last was " + std::string(operation_name(member.last_operation)) + " #" +
         std::to_string(member.last_sequence) + ")";
}

std::string Group::waiting_for() const {
  std::vector<int> late;
  for (const bool entered_too : {false, true}) {
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const bool up = engine_.peer_state(world_rank(r)) == Engine::PeerState::kUp;
      const bool entered = announced_ && entry(r, current_sequence_).present;
      // Before all are connected nobody announces anything: only connections tell who is late.
      const bool is_late = entered_too ? needs(r) : !up || (announced_ && !entered);
      if (is_late) late.push_back(r);
    }
    if (!late.empty()) break;
  }
  std::string text;
  for (const int r : late) text += (text.empty() ? "" : ", ") + state_of(r);
  return text.empty() ? "its own turn" : text;
}

}  // namespace qx::collectives
