#include <algorithm>
#include <charconv>

#include "quincunx/collectives/simulation/simulation_state.h"

namespace qx::collectives {
namespace {

constexpr double kBindSeconds = 10e-6;
constexpr double kTimerSeconds = 1e-6;
constexpr int kSynRetransmits = 5;  // a SYN waits five times as long as a segment of a connection

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }
TreeNode::Time time_point(int64_t time) { return TreeNode::Time(std::chrono::nanoseconds(time)); }

}  // namespace

bool BootstrapSimulation::State::is_up(int rank) const { return ranks[static_cast<size_t>(rank)].node != nullptr; }

int64_t BootstrapSimulation::State::delay(int from, int to) const {
  const bool local = ranks[static_cast<size_t>(from)].host == ranks[static_cast<size_t>(to)].host;
  return nanoseconds((local || network.is_one_machine ? network.local_round_trip_s : network.round_trip_s) / 2);
}

double BootstrapSimulation::State::proof_cost(Rank& rank, bool is_local) const {
  if (is_local || rank.has_proven) return 0;
  rank.has_proven = true;
  return network.first_proof_s;
}

// When the processor has done the work that came at `time`. One thread serves a rank: it goes on no earlier than it has
// ended. Of cores that are free by then the one that was busy last does it; others stay free for other ranks.
int64_t BootstrapSimulation::State::charge(Rank& rank, int64_t time, double cost_s) {
  const int64_t ready = std::max(time, rank.busy_until);
  std::vector<int64_t>& cores = hosts[network.is_one_machine ? 0 : static_cast<size_t>(rank.host)].cores_busy_until;
  int64_t* core = nullptr;
  for (int64_t& busy_until : cores) {
    if (busy_until <= ready && (core == nullptr || busy_until > *core)) core = &busy_until;
  }
  if (core == nullptr && !cores.empty()) core = &*std::min_element(cores.begin(), cores.end());
  const int64_t begin = core == nullptr ? ready : std::max(ready, *core);
  rank.busy_until = begin + nanoseconds(cost_s);
  if (core != nullptr) *core = rank.busy_until;
  return rank.busy_until;
}

template <typename Use>
void BootstrapSimulation::State::use_node(int rank_index, double cost_s, Use&& use) {
  Rank& rank = ranks[static_cast<size_t>(rank_index)];
  if (rank.node == nullptr || rank.is_stopped) return;
  const int64_t time = charge(rank, queue.now(), cost_s);
  use(*rank.node, time_point(time));
  carry_out(rank_index, time);
  if (rank.fault != nullptr) apply_fault(rank_index);
  if (rank.node != nullptr) schedule_timer(rank_index);
}

void BootstrapSimulation::State::schedule_timer(int rank_index) {
  Rank& rank = ranks[static_cast<size_t>(rank_index)];
  const TreeNode::Time next = rank.node->next_timer();
  if (next == TreeNode::Time::max()) return;
  const int64_t at = std::max(next.time_since_epoch().count(), queue.now());
  if (at >= rank.timer_at) return;
  rank.timer_at = at;
  queue.schedule(at, {EventKind::kTimer, 0, rank_index, 0, 0});
}

void BootstrapSimulation::State::start(int rank_index) {
  Rank& rank = ranks[static_cast<size_t>(rank_index)];
  rank.outcome.started = rank.outcome.alive = true;
  rank.outcome.started_s = static_cast<double>(queue.now() - first_start) * 1e-9;
  auto node = TreeNode::create(options_of(rank_index));
  QX_CHECK_MESSAGE(node.ok(), node.status().message());
  rank.node = std::move(*node);
  if (rank.fault != nullptr && rank.fault->phase == FaultPhase::kListening) apply_fault(rank_index);
  use_node(rank_index, network.start_s, [](TreeNode& started, TreeNode::Time now) { started.start(now); });
}

void BootstrapSimulation::State::carry_out(int rank, int64_t time) {
  // The node may be gone in the middle: it dies with what it had in mind.
  while (is_up(rank)) {
    auto action = ranks[static_cast<size_t>(rank)].node->take_action();
    if (!action) return;
    time = std::max(time, ranks[static_cast<size_t>(rank)].busy_until);
    switch (action->kind) {
      case TreeAction::Kind::kBindHost: bind_host(rank, time); break;
      case TreeAction::Kind::kLookUpRoot:
        queue.schedule(time + nanoseconds(network.look_up_s),
                       {EventKind::kRootFound, 0, rank, 0, static_cast<uint32_t>(action->rank)});
        break;
      case TreeAction::Kind::kConnect: connect(rank, *action, time); break;
      case TreeAction::Kind::kSend: send(rank, *action, time); break;
      case TreeAction::Kind::kClose: close(rank, action->connection, time); break;
      default: take_note(rank, *action, time);
    }
  }
}

void BootstrapSimulation::State::bind_host(int rank_index, int64_t time) {
  Rank& rank = ranks[static_cast<size_t>(rank_index)];
  Host& host = hosts[static_cast<size_t>(rank.host)];
  const bool won = host.leader < 0 || host.leader == rank_index;
  if (won) host.leader = rank_index;
  const int64_t done = charge(rank, time, kBindSeconds);
  queue.schedule(done, {EventKind::kBound, 0, rank_index, 0, won});
}

// "@host-7", "@rank-12", and rank 0x010203 at "10.1.2.3:7000". -1: nobody listens there.
int BootstrapSimulation::State::listener_of(int from, const std::string& endpoint) const {
  const auto number_at = [&](size_t& at) {
    int value = -1;
    const auto parsed = std::from_chars(endpoint.data() + at, endpoint.data() + endpoint.size(), value);
    at = static_cast<size_t>(parsed.ptr - endpoint.data()) + 1;
    return value;
  };
  size_t at = 6;
  if (endpoint.starts_with("@host-")) {
    const int host = number_at(at);
    const int leader = hosts[static_cast<size_t>(host)].leader;
    return host == ranks[static_cast<size_t>(from)].host ? leader : -1;
  }
  if (endpoint.starts_with("@rank-")) {
    const int rank = number_at(at);
    return is_up(rank) && ranks[static_cast<size_t>(rank)].host == ranks[static_cast<size_t>(from)].host ? rank : -1;
  }
  at = 3;
  int rank = 0;
  for (int part = 0; part < 3; ++part) rank = rank * 256 + number_at(at);
  return is_up(rank) ? rank : -1;
}

void BootstrapSimulation::State::connect(int rank_index, const TreeAction& action, int64_t time) {
  Rank& rank = ranks[static_cast<size_t>(rank_index)];
  const bool is_local = action.endpoint.starts_with('@');
  time = charge(rank, time, (is_local ? network.local_connect_s : network.connect_s) + proof_cost(rank, is_local));
  const int peer = listener_of(rank_index, action.endpoint);
  if (peer < 0) {
    queue.schedule(time + nanoseconds(network.round_trip_s),
                   {EventKind::kRefused, 0, rank_index, 0, action.connection});
    return;
  }
  if (network.loss > 0 && random.uniform() < network.loss) time += nanoseconds(network.retransmit_s) * kSynRetransmits;
  const auto index = static_cast<uint32_t>(channels.size());
  Channel& channel = channels.emplace_back();
  channel.ranks[0] = rank_index;
  channel.ranks[1] = peer;
  channel.ids[0] = action.connection;
  rank.sockets.push_back({action.connection, index, 0});
  const int64_t one_way = delay(rank_index, peer);
  queue.schedule(time + one_way, {EventKind::kArrival, 1, peer, index, is_local});
  queue.schedule(time + 2 * one_way, {EventKind::kConnected, 0, rank_index, index, 0});
}

BootstrapSimulation::State::Socket* BootstrapSimulation::State::find_socket(Rank& rank, TreeConnection id) {
  const auto found = std::lower_bound(rank.sockets.begin(), rank.sockets.end(), id,
                                      [](const Socket& socket, TreeConnection wanted) { return socket.id < wanted; });
  return found != rank.sockets.end() && found->id == id ? &*found : nullptr;
}

uint32_t BootstrapSimulation::State::store(std::vector<std::byte> bytes) {
  if (free_payloads.empty()) {
    free_payloads.push_back(static_cast<uint32_t>(payloads.size()));
    payloads.emplace_back();
  }
  const uint32_t index = free_payloads.back();
  free_payloads.pop_back();
  payloads[index] = std::move(bytes);
  return index;
}

void BootstrapSimulation::State::send(int rank_index, TreeAction& action, int64_t time) {
  Rank& rank = ranks[static_cast<size_t>(rank_index)];
  const Socket* socket = find_socket(rank, action.connection);
  if (socket == nullptr) return;
  Channel& channel = channels[socket->channel];
  const uint8_t side = 1 - socket->side;
  const auto size = static_cast<double>(action.bytes.size());
  int64_t arrival = charge(rank, time, network.message_s + size * network.byte_s);
  Host& host = hosts[static_cast<size_t>(rank.host)];
  Host& peer_host = hosts[static_cast<size_t>(ranks[static_cast<size_t>(channel.ranks[side])].host)];
  const int64_t transfer = nanoseconds(size / network.link_bytes_per_s);
  if (&host != &peer_host) arrival = host.sending_until = std::max(host.sending_until, arrival) + transfer;
  arrival += delay(rank_index, channel.ranks[side]);
  if (network.loss > 0 && random.uniform() < network.loss) arrival += nanoseconds(network.retransmit_s);
  if (&host != &peer_host) {
    // What was lost and comes late does not hold up others.
    const int64_t received = std::max(peer_host.receiving_until, arrival - transfer) + transfer;
    if (network.loss == 0) arrival = peer_host.receiving_until = received;
  }
  arrival = channel.last_arrival[side] = std::max(arrival, channel.last_arrival[side]);
  queue.schedule(arrival,
                 {EventKind::kData, side, channel.ranks[side], socket->channel, store(std::move(action.bytes))});
}

void BootstrapSimulation::State::close(int rank_index, TreeConnection id, int64_t time) {
  Rank& rank = ranks[static_cast<size_t>(rank_index)];
  const Socket* socket = find_socket(rank, id);
  if (socket == nullptr) return;  // an attempt that has not been answered
  const uint8_t side = socket->side;
  const uint32_t index = socket->channel;
  rank.sockets.erase(rank.sockets.begin() + (socket - rank.sockets.data()));
  Channel& channel = channels[index];
  channel.open[side] = false;
  const uint8_t other = 1 - side;
  const int64_t arrival = std::max(time + delay(rank_index, channel.ranks[other]), channel.last_arrival[other]);
  queue.schedule(arrival, {EventKind::kClosed, other, channel.ranks[other], index, 0});
}

void BootstrapSimulation::State::die(int rank_index) {
  Rank& rank = ranks[static_cast<size_t>(rank_index)];
  if (rank.node == nullptr) return;
  record_costs(rank);
  rank.outcome.alive = false;
  rank.outcome.died_s = static_cast<double>(queue.now() - first_start) * 1e-9;
  settle(rank);
  Host& host = hosts[static_cast<size_t>(rank.host)];
  if (host.leader == rank_index) host.leader = -1;
  while (!rank.sockets.empty()) close(rank_index, rank.sockets.back().id, queue.now());
  rank.node.reset();
}

void BootstrapSimulation::State::settle(Rank& rank) {
  if (rank.is_settled) return;
  rank.is_settled = true;
  --num_unsettled;
}

void BootstrapSimulation::State::take_note(int rank_index, TreeAction& action, int64_t time) {
  Rank& rank = ranks[static_cast<size_t>(rank_index)];
  const double seconds = static_cast<double>(time - first_start) * 1e-9;
  switch (action.kind) {
    case TreeAction::Kind::kReady:
      rank.outcome.ready_s = seconds;
      settle(rank);
      break;
    case TreeAction::Kind::kFailed:
      rank.outcome.failed_s = seconds;
      rank.outcome.failure = action.status;
      rank.outcome.failure_ranks = action.ranks;
      settle(rank);
      break;
    case TreeAction::Kind::kPeerDied:
      rank.outcome.died.insert(action.rank);
      rank.outcome.last_died_s = seconds;
      break;
    default:
      if (listener) listener(rank_index, action);
  }
}

bool BootstrapSimulation::State::has_reached(const Rank& rank, FaultPhase phase) const {
  const TreeNode& node = *rank.node;
  const bool is_root = node.options().rank == 0;  // the top says hello to nobody
  switch (phase) {
    case FaultPhase::kNeverStarts:
    case FaultPhase::kListening: return true;
    case FaultPhase::kGreeting:
      return is_root ? node.statistics().num_accepts > 0 : node.statistics().messages_sent > 0;
    case FaultPhase::kAttached:
      if (is_root) return node.statistics().num_children > 0;
      return node.progress().phase == TreeProgress::Phase::kAttached || node.is_ready();
    case FaultPhase::kReady: return node.is_ready();
  }
  return false;
}

void BootstrapSimulation::State::apply_fault(int rank_index) {
  Rank& rank = ranks[static_cast<size_t>(rank_index)];
  const Fault& fault = *rank.fault;
  const bool ends = fault.kind == Fault::Kind::kDies || fault.kind == Fault::Kind::kStops;
  if (rank.node == nullptr || !ends || !has_reached(rank, fault.phase)) return;
  rank.fault = nullptr;
  if (fault.kind == Fault::Kind::kDies) return die(rank_index);
  rank.is_stopped = true;
  rank.outcome.died_s = static_cast<double>(queue.now() - first_start) * 1e-9;
  settle(rank);
}

void BootstrapSimulation::State::step() {
  const Event event = queue.pop();
  Rank& rank = ranks[static_cast<size_t>(event.rank)];
  switch (event.kind) {
    case EventKind::kStart: return start(event.rank);
    case EventKind::kTimer:
      if (rank.timer_at == queue.now()) rank.timer_at = INT64_MAX;
      return use_node(event.rank, kTimerSeconds, [](TreeNode& node, TreeNode::Time now) { node.on_timer(now); });
    case EventKind::kRefused:
      return use_node(event.rank, 0, [&](TreeNode& node, TreeNode::Time now) {
        node.on_closed(event.payload, "connection refused", now);
      });
    case EventKind::kBound:
      return use_node(event.rank, 0,
                      [&](TreeNode& node, TreeNode::Time now) { node.on_host_bound(event.payload != 0, now); });
    case EventKind::kRootFound:
      return use_node(event.rank, 0, [&](TreeNode& node, TreeNode::Time now) {
        const auto root = static_cast<int>(event.payload);
        node.on_root_found(root, options_of(root).endpoints, now);
      });
    default: return step_of(channels[event.channel], event);
  }
}

void BootstrapSimulation::State::step_of(Channel& channel, const Event& event) {
  Rank& rank = ranks[static_cast<size_t>(event.rank)];
  double cost_s = 0;
  switch (event.kind) {
    case EventKind::kArrival:
      if (!channel.open[1]) return;
      if (rank.node == nullptr) {
        // It has died since.
        channel.open[1] = false;
        const int64_t reset = queue.now() + delay(event.rank, channel.ranks[0]);
        queue.schedule(reset, {EventKind::kClosed, 0, channel.ranks[0], event.channel, 0});
        return;
      }
      cost_s = event.payload != 0 ? network.local_accept_s : network.accept_s;
      return use_node(event.rank, network.wakeup_s + cost_s + proof_cost(rank, event.payload != 0),
                      [&](TreeNode& node, TreeNode::Time now) {
                        channel.ids[1] = node.on_accepted(now);
                        rank.sockets.push_back({channel.ids[1], event.channel, 1});
                      });
    case EventKind::kConnected:
      if (!channel.open[0]) return;
      return use_node(event.rank, 0,
                      [&](TreeNode& node, TreeNode::Time now) { node.on_connected(channel.ids[0], now); });
    case EventKind::kData: {
      const std::vector<std::byte> bytes = std::move(payloads[event.payload]);
      free_payloads.push_back(event.payload);
      if (!channel.open[event.side]) return;
      cost_s = network.wakeup_s + network.message_s + static_cast<double>(bytes.size()) * network.byte_s;
      return use_node(event.rank, cost_s,
                      [&](TreeNode& node, TreeNode::Time now) { node.on_bytes(channel.ids[event.side], bytes, now); });
    }
    case EventKind::kClosed:
      if (!channel.open[event.side] || rank.is_stopped) return;
      channel.open[event.side] = false;
      if (Socket* socket = find_socket(rank, channel.ids[event.side])) {
        rank.sockets.erase(rank.sockets.begin() + (socket - rank.sockets.data()));
      }
      return use_node(event.rank, network.wakeup_s + network.message_s, [&](TreeNode& node, TreeNode::Time now) {
        node.on_closed(channel.ids[event.side], "connection reset by peer", now);
      });
    default: return;
  }
}

void BootstrapSimulation::State::run_until(int64_t end) {
  // An event after the end is looked at only when it is due: a marker holds the clock.
  while (!queue.empty() && queue.next_time() <= end) step();
  queue.advance_to(end);
}

void BootstrapSimulation::with_node(int rank, const std::function<void(TreeNode&, TreeNode::Time)>& use) {
  state_->use_node(rank, 0, use);
}

}  // namespace qx::collectives
