#include "quincunx/collectives/group.h"

#include <algorithm>
#include <utility>

#include "quincunx/collectives/algorithms/two_levels.h"

namespace qx::collectives {

namespace {

int position_of(int world_rank, const std::vector<int>& members) {
  const auto found = std::find(members.begin(), members.end(), world_rank);
  return static_cast<int>(found - members.begin());
}

}  // namespace

Group::Group(Engine& engine, uint64_t id, std::string name, std::vector<int> members)
    : engine_(engine),
      id_(id),
      name_(std::move(name)),
      members_(std::move(members)),
      rank_of_(static_cast<size_t>(engine.world_size()), -1),
      rank_(position_of(engine.rank(), members_)),
      members_state_(members_.size()),
      point_to_point_(*this),
      uses_tree_(size() > largest_flat_group()),
      tree_(HostLayout(size()), rank_) {
  for (size_t r = 0; r < members_.size(); ++r) {
    rank_of_[static_cast<size_t>(members_[r])] = static_cast<int>(r);
  }
}

void Group::enqueue(OperationPtr operation, std::unique_ptr<DirectExchange> exchange) {
  operation->sequence = next_sequence_++;
  queue_.push_back({std::move(operation), std::move(exchange), nullptr});
  if (queue_.size() == 1) start_next();
}

void Group::start_next() {
  if (queue_.empty() || announced_ || !failure_.ok()) return;
  if (later_failure_ && queue_.front().operation->sequence >= later_failure_->sequence) {
    return fail_as_told(*later_failure_);
  }
  for (int r = 0; r < size(); ++r) {
    const Engine::PeerState state = engine_.peer_state(world_rank(r));
    if (state == Engine::PeerState::kConnecting) return;
    // A rank that has entered this collective and left may have sent all that is needed.
    if (is_lost(r) && !has_entered(r, queue_.front().operation->sequence)) {
      return fail(unavailable(queue_.front().operation->label() + ": " + describe_peer(r)), true,
                  queue_.front().operation->sequence);
    }
  }
  const OperationPtr& operation = queue_.front().operation;
  current_sequence_ = operation->sequence;
  announced_ = true;
  begun_ = false;
  Entry& own = entry(rank_, current_sequence_);
  own.present = true;
  own.call = operation->description().call;
  own.host = engine_.host();
  note_entered(members_state_[static_cast<size_t>(rank_)], current_sequence_, own.call.operation);
  if (uses_tree()) return climb();
  FrameHeader header = own.call.header(id_, current_sequence_);
  header.host = own.host;
  const auto counts = std::as_bytes(std::span(own.call.counts));
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) engine_.post(world_rank(r), header, counts, queue_.front().direct->inline_input(r));
  }
  engine_.flush();
  begin_if_entered();
}

void Group::note_entered(Member& member, uint64_t sequence, Operation operation) {
  member.entered_any = true;
  member.last_sequence = sequence;
  member.last_operation = operation;
}

bool Group::has_entered(int rank, uint64_t sequence) const {
  if (begun_ && sequence == current_sequence_) return true;
  const Member& member = members_state_[static_cast<size_t>(rank)];
  if (!uses_tree() || rank == rank_) return entry(rank, sequence).present;
  if (member.entered_any && member.last_sequence >= sequence) return true;
  const auto texts = below_.find(tree_.child_towards(rank));
  return texts != below_.end() && texts->second[sequence % 2].is_complete;
}

void Group::learn_hosts(std::span<const uint32_t> hosts) {
  layout_.emplace(hosts);
  uses_tree_ = gathers_calls(*layout_);
  tree_ = CallTree(*layout_, rank_);
}

Status Group::check_sequence(const FrameHeader& header) const {
  const uint64_t oldest = queue_.empty() ? next_sequence_ : queue_.front().operation->sequence;
  if (header.sequence == oldest || header.sequence == oldest + 1) return ok_status();
  return data_loss("a call with sequence " + std::to_string(header.sequence) + ", expected " + std::to_string(oldest));
}

Status Group::on_call(int rank, const FrameHeader& header, std::span<const std::byte> payload) {
  if (uses_tree()) return data_loss("a call that did not come through the tree");
  QX_RETURN_IF_ERROR(check_sequence(header));
  Entry& arrived = entry(rank, header.sequence);
  if (arrived.present) return data_loss("a second call with sequence " + std::to_string(header.sequence));
  arrived.present = true;
  arrived.call = call_from_frame(header, payload);
  arrived.host = header.host;
  const auto input = payload.subspan(size_t{header.num_counts} * 8);
  arrived.input.assign(input.begin(), input.end());
  note_entered(members_state_[static_cast<size_t>(rank)], header.sequence, arrived.call.operation);
  begin_if_entered();
  return ok_status();
}

int Group::num_calls_awaited() const {
  if (uses_tree_ || !announced_ || begun_) return 0;
  int num_calls = 0;
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    if (!engine_.shares_memory_with(world_rank(r)) || is_lost(r)) return 0;
    num_calls += !entry(r, current_sequence_).present;
  }
  return num_calls;
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
  if (!layout_) {
    std::vector<uint32_t> hosts;
    for (int r = 0; r < size(); ++r) hosts.push_back(entry(r, current_sequence_).host);
    learn_hosts(hosts);
  }
  begin(inputs);
}

void Group::begin(std::span<const std::span<const std::byte>> inlined) {
  begun_ = true;
  Pending& current = queue_.front();
  if (takes_two_levels(current.direct->call(), *layout_, inlined.empty())) {
    current.in_two_levels = in_two_levels(*current.direct, *layout_, rank_);
  }
  Status status = current.exchange().begin(inlined);
  for (const EarlyOffer& early : std::exchange(early_offers_, {})) {
    if (status.ok()) status = take_offer(early.rank, early.header, early.offer);
  }
  if (!status.ok()) return fail(status, true);
  for (int r = 0; r < size(); ++r) {
    if (current.exchange().unsent_to(r) > 0) engine_.want_link(world_rank(r));
  }
  start_stage();
  for (int r = 0; r < size() && failure_.ok(); ++r) {
    if (is_lost(r)) on_peer_lost(world_rank(r));
  }
  if (failure_.ok()) finish_if_complete();
}

void Group::start_stage() {
  for (int r = 0; r < size(); ++r) make_offers(r);
  send_notices();
}

void Group::finish_if_complete() {
  while (begun_ && queue_.front().exchange().advance()) start_stage();
  if (begun_ && queue_.front().exchange().is_complete()) finish(ok_status());
}

void Group::finish(Status status) {
  Pending done = std::move(queue_.front());
  queue_.pop_front();
  bytes_read_in_place_ += done.exchange().bytes_read_in_place();
  for (int r = 0; r < size(); ++r) {
    Entry& used = entry(r, current_sequence_);
    used.present = false;
    used.input.clear();
  }
  for (auto& [rank, texts] : below_) texts[current_sequence_ % 2] = {};
  verdict_ = {};
  early_offers_.clear();
  announced_ = begun_ = climbed_ = probing_ = false;
  expired_.reset();
  engine_.end(std::move(done.operation), std::move(status));
  start_next();
}

void Group::fail(const Status& status, bool tell_peers, uint64_t sequence) {
  if (!failure_.ok()) return;
  const bool aborted = status.code() == StatusCode::kAborted;
  cause_ = {status, rank_, sequence};
  if (status.code() == StatusCode::kUnavailable) engine_.note_loss();
  failure_ = {aborted ? StatusCode::kAborted : StatusCode::kFailedPrecondition,
              "group '" + name_ + "' takes no further operations: " + status.message()};
  if (tell_peers) tell_failure(-1, cause_);
  std::deque<Pending> queue = std::move(queue_);
  queue_.clear();
  announced_ = begun_ = probing_ = false;
  expired_.reset();
  for (Pending& pending : queue) {
    engine_.release(&pending.exchange());
    engine_.end(std::move(pending.operation), status);
  }
  point_to_point_.fail(status);
  if (tell_peers) engine_.flush();
}

void Group::on_fail(int rank, const FrameHeader& header, std::span<const std::byte> payload) {
  // What comes earlier counts, whatever was told of later operations before.
  const bool is_known = later_failure_ && header.sequence >= later_failure_->sequence && header.sequence > 0;
  if (!failure_.ok() || is_known) return;
  const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
  const auto given = static_cast<StatusCode>(header.status_code);
  const StatusCode code = given == StatusCode::kOk ? StatusCode::kInternal : given;
  const Failure told{{code, text}, header.root_or_tag, header.sequence};
  if (uses_tree()) {
    tell_failure(rank, told);
    engine_.flush();
  }
  const uint64_t oldest = queue_.empty() ? next_sequence_ : queue_.front().operation->sequence;
  const bool has_come = header.sequence == 0 || (!queue_.empty() && oldest >= header.sequence);
  if (has_come || oldest > header.sequence) return fail_as_told(told);
  later_failure_ = told;
}

void Group::fail_as_told(const Failure& told) {
  if (!failure_.ok()) return;
  fail({told.status.code(), "rank " + std::to_string(told.rank) + " reported: " + told.status.message()}, false);
  cause_ = told;
}

void Group::close() {
  FrameHeader header;
  header.kind = FrameKind::kGoodbye;
  header.group = id_;
  header.sequence = next_sequence_;
  const bool idle = failure_.ok() && queue_.empty();
  for (int r = 0; r < size() && idle; ++r) {
    if (r != rank_ && engine_.has_link(world_rank(r))) engine_.post(world_rank(r), header, {});
  }
  // Others may hear of this rank's leaving before whoever told it why has told them.
  if (!failure_.ok() && cause_.rank != rank_) tell_failure(-1, cause_);
  fail(aborted("the communicator was destroyed"), !idle);
  engine_.flush();
  engine_.remove_group(*this);
}

bool Group::is_lost(int rank) const {
  return members_state_[static_cast<size_t>(rank)].left ||
         engine_.peer_state(world_rank(rank)) == Engine::PeerState::kLost;
}

void Group::tell_failure(int except, const Failure& failure) {
  for (int r = 0; r < size(); ++r) {
    // In a large group every rank tells those that it has links to, and they tell others.
    const bool told = !uses_tree() || tree_.is_neighbour(r) || engine_.has_link(world_rank(r));
    if (r != rank_ && r != except && told) post_failure(r, failure);
  }
}

void Group::post_failure(int rank, const Failure& failure) {
  FrameHeader header;
  header.kind = FrameKind::kFail;
  header.group = id_;
  header.status_code = static_cast<uint8_t>(failure.status.code());
  header.root_or_tag = failure.rank;
  header.sequence = failure.sequence;
  const std::string text = failure.status.message().substr(0, static_cast<size_t>(kMaxStoredBytes));
  engine_.post(world_rank(rank), header, std::as_bytes(std::span(text)));
}

void Group::on_peer_up(int world_rank) {
  if (group_rank(world_rank) < 0) return;
  start_next();
  point_to_point_.on_peer_up(group_rank(world_rank));
}

bool Group::needs(int rank) const {
  if (queue_.empty()) return false;
  if (!announced_) return true;
  // Through a tree the verdict may be on its way though a rank that this one has no link to is gone.
  if (uses_tree() && !begun_)
    return rank == tree_.parent() || (tree_.is_neighbour(rank) && !has_entered(rank, current_sequence_));
  if (!has_entered(rank, current_sequence_)) return true;
  const Exchange& exchange = queue_.front().exchange();
  return begun_ && (exchange.missing_from(rank) > 0 || exchange.unsent_to(rank) > 0);
}

void Group::on_peer_lost(int world_rank) {
  const int rank = group_rank(world_rank);
  if (rank < 0 || !failure_.ok()) return;
  if (needs(rank))
    return fail(unavailable(queue_.front().operation->label() + ": " + describe_peer(rank)), true,
                queue_.front().operation->sequence);
  point_to_point_.on_peer_lost(rank);
}

Status Group::on_frame(int world_rank, const FrameHeader& header, std::span<const std::byte> payload) {
  const int rank = group_rank(world_rank);
  if (rank < 0) return data_loss("a frame for group '" + name_ + "' from a rank that is no member");
  switch (header.kind) {
    case FrameKind::kFail: on_fail(rank, header, payload); return ok_status();
    case FrameKind::kGoodbye: {
      Member& member = members_state_[static_cast<size_t>(rank)];
      member.left = true;
      if (header.sequence > 0) note_entered(member, header.sequence - 1, member.last_operation);
      on_peer_lost(world_rank);
      return ok_status();
    }
    case FrameKind::kCalls: return failure_.ok() ? on_calls(rank, header, payload) : ok_status();
    case FrameKind::kVerdict: return failure_.ok() ? on_verdict(rank, header, payload) : ok_status();
    case FrameKind::kProbe: answer_probe(rank); return ok_status();
    case FrameKind::kProbeAnswer: on_probe_answer(rank, header); return ok_status();
    case FrameKind::kCall: return failure_.ok() ? on_call(rank, header, payload) : ok_status();
    case FrameKind::kCredit:
      if (begun_ && header.sequence == current_sequence_)
        queue_.front().exchange().add_credit(rank, header.root_or_tag, header.count);
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
  const int64_t taken = queue_.front().exchange().receive(rank, header.root_or_tag, header.stream, link, limit);
  if (taken < 0) return data_loss("more data than the calls of " + queue_.front().operation->label() + " said");
  send_notices();
  if (taken > 0) finish_if_complete();
  return std::optional<int64_t>(taken);
}

std::optional<OutgoingFrame> Group::next_frame(int world_rank) {
  const int rank = group_rank(world_rank);
  if (rank < 0 || rank == rank_) return std::nullopt;
  if (begun_) {
    Exchange* exchange = &queue_.front().exchange();
    if (const auto chunk = exchange->next_chunk(rank)) {
      OutgoingFrame frame;
      frame.header.kind = FrameKind::kData;
      frame.header.group = id_;
      frame.header.sequence = current_sequence_;
      frame.header.stream = chunk->stream;
      frame.header.root_or_tag = chunk->lane;
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

}  // namespace qx::collectives
