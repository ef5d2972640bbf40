// The part of Group that tells who was late when an operation has run out of time.
#include <algorithm>

#include "quincunx/collectives/group.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// How long a member may take to answer: a rank that computes looks at its links ten times a second.
constexpr milliseconds kAnswerTime{250};
// Rank 0 asks for all at once; should it be the one that is late, rank 1 does; should both be, each for itself.
// Together with the answers that is less than a second.
constexpr milliseconds kSecondAsks{150};
constexpr milliseconds kOthersAsk{450};

}  // namespace

std::optional<Clock::time_point> Group::give_up(const OperationPtr& operation) {
  const Operation kind = operation->description().call.operation;
  const bool pairwise = kind == Operation::kSend || kind == Operation::kRecv;
  if (pairwise || !announced_) {
    conclude(*operation);
    return std::nullopt;
  }
  const Clock::time_point now = Clock::now();
  if (!expired_) {
    expired_ = operation;
    expired_at_ = now;
  }
  const Clock::time_point asks = expired_at_ + (rank_ == 0 ? milliseconds(0) : rank_ == 1 ? kSecondAsks : kOthersAsk);
  if (now < asks) return asks;
  if (!probing_) probe();
  if (!all_answered() && now < asks + kAnswerTime) return asks + kAnswerTime;
  conclude(*operation);
  return std::nullopt;
}

void Group::conclude(const OperationState& operation) {
  const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - operation.description().started);
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
  const uint64_t failing = queue_.empty() ? 0 : queue_.front().operation->sequence;
  fail(deadline_exceeded(text + ", waiting for " + waiting_for()), true, failing);
}

OperationPtr Group::first_due_by(Clock::time_point time) const {
  for (const Pending& pending : queue_) {
    if (pending.operation->deadline() <= time) return pending.operation;
  }
  return point_to_point_.first_due_by(time);
}

void Group::expire(Clock::time_point now) {
  if (const OperationPtr late = first_due_by(now)) give_up(late);
}

void Group::probe() {
  probing_ = true;
  FrameHeader header;
  header.kind = FrameKind::kProbe;
  header.group = id_;
  for (int r = 0; r < size(); ++r) {
    Member& member = members_state_[static_cast<size_t>(r)];
    member.answered = member.is_waiting = false;
    // Within an operation a rank may be held up by one that this rank does not wait for.
    const bool may_be_late = begun_ || !has_entered(r, current_sequence_);
    member.asked = r != rank_ && may_be_late && engine_.peer_state(world_rank(r)) == Engine::PeerState::kUp;
    if (member.asked) engine_.post(world_rank(r), header, {});
  }
  engine_.flush();
}

bool Group::all_answered() const {
  for (int r = 0; r < size(); ++r) {
    const Member& member = members_state_[static_cast<size_t>(r)];
    if (member.asked && !member.answered && !is_lost(r)) return false;
  }
  return true;
}

void Group::answer_probe(int rank) {
  // It was told to those that were connected then: who asks may not have been.
  if (!cause_.status.ok()) post_failure(rank, cause_);
  // After a failure too: who asks may be in an operation before the one that has failed here.
  const Member& own = members_state_[static_cast<size_t>(rank_)];
  FrameHeader header;
  header.kind = FrameKind::kProbeAnswer;
  header.group = id_;
  header.sequence = own.entered_any ? own.last_sequence + 1 : 0;
  header.operation = static_cast<uint8_t>(own.last_operation);
  header.count = queue_.empty() ? 0 : 1;
  engine_.post(world_rank(rank), header, {});
}

void Group::on_probe_answer(int rank, const FrameHeader& header) {
  Member& member = members_state_[static_cast<size_t>(rank)];
  member.answered = true;
  member.is_waiting = header.count != 0;
  if (header.stream == 1) member.left = true;
  if (header.sequence > 0) note_entered(member, header.sequence - 1, static_cast<Operation>(header.operation));
  if (probing_ && expired_ && all_answered()) conclude(*OperationPtr(expired_));
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
  std::string silence = member.asked && !member.answered ? ", does not answer" : "";
  const std::string& connecting = engine_.peer_text(world_rank(rank));
  if (!engine_.has_link(world_rank(rank)) && !connecting.empty()) silence += ", " + connecting;
  if (begun_ || (!uses_tree() && announced_ && entry(rank, current_sequence_).present)) {
    return name + " (entered, " + std::to_string(queue_.front().exchange().missing_from(rank)) + " bytes to come, " +
           std::to_string(queue_.front().exchange().unsent_to(rank)) + " to go" + silence + ")";
  }
  if (!member.entered_any)
    return name + " (" + (silence.empty() ? "connected, has entered no operation" : silence.substr(2)) + ")";
  return name + " (not entered" + silence + "; its last was " + std::string(operation_name(member.last_operation)) +
         " #" + std::to_string(member.last_sequence) + ")";
}

std::string Group::waiting_for() const {
  std::vector<int> late;
  for (const bool entered_too : {false, true}) {
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const bool up =
          engine_.peer_state(world_rank(r)) == Engine::PeerState::kUp || engine_.peer_is_there(world_rank(r));
      const bool entered = announced_ && has_entered(r, current_sequence_);
      const Member& member = members_state_[static_cast<size_t>(r)];
      const bool is_silent = begun_ && member.asked && !member.answered;
      // Before all are connected nobody announces anything: only connections tell who is late.
      // Who has left after entering has done its part.
      const bool is_late = entered_too ? needs(r) : (announced_ ? !entered : !up) || is_silent;
      if (is_late) late.push_back(r);
    }
    if (!late.empty()) break;
  }
  // Who waits in this group too is held up by another, if there is another.
  const auto waits = [this](int r) { return members_state_[static_cast<size_t>(r)].is_waiting; };
  if (!std::all_of(late.begin(), late.end(), waits)) std::erase_if(late, waits);
  std::string text;
  for (const int r : late) text += (text.empty() ? "" : ", ") + state_of(r);
  return text.empty() ? "its own turn" : text;
}

}  // namespace qx::collectives
