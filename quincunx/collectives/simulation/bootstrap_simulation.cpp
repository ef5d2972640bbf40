#include "quincunx/collectives/simulation/bootstrap_simulation.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <utility>

#include "quincunx/collectives/simulation/simulation_state.h"

namespace qx::collectives {
namespace {

constexpr int kMaxSimulatedRanks = 1 << 20;

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

template <typename T>
bool parse_number(const std::string& text, T& value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

Status check_fault(const Fault& fault, int num_ranks) {
  const auto wrong = [](const std::string& name, int value, int low, int high) {
    return invalid_argument(name + " is " + std::to_string(value) + ", expected " + std::to_string(low) + " to " +
                            std::to_string(high));
  };
  if (fault.rank < 0 || fault.rank >= num_ranks) return wrong("the rank of a fault", fault.rank, 0, num_ranks - 1);
  if (fault.kind == Fault::Kind::kClaims && fault.value >= num_ranks) {
    return wrong("the rank that a fault claims", fault.value, 0, num_ranks - 1);
  }
  if (fault.kind == Fault::Kind::kWorldSize && (fault.value <= fault.rank || fault.value > kMaxSimulatedRanks)) {
    return wrong("the world size of a fault", fault.value, fault.rank + 1, kMaxSimulatedRanks);
  }
  return ok_status();
}

Status check(const BootstrapScenario& scenario) {
  const auto wrong = [](const std::string& name, const std::string& value, const std::string& expected) {
    return invalid_argument(name + " is " + value + ", expected " + expected);
  };
  const int ranks = scenario.num_ranks;
  if (ranks < 1 || ranks > kMaxSimulatedRanks) {
    return wrong("num_ranks", std::to_string(ranks), "1 to " + std::to_string(kMaxSimulatedRanks));
  }
  if (scenario.ranks_per_host < 1) return wrong("ranks_per_host", std::to_string(scenario.ranks_per_host), "1 or more");
  const auto& sizes = scenario.host_sizes;
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (!sizes.empty() && (sum != ranks || *std::min_element(sizes.begin(), sizes.end()) < 1)) {
    return wrong("host_sizes", "of " + std::to_string(sum) + " ranks",
                 std::to_string(ranks) + " on hosts of 1 or more");
  }
  if (scenario.num_roots < 0 || scenario.num_roots > ranks) {
    return wrong("num_roots", std::to_string(scenario.num_roots), "0 to " + std::to_string(ranks));
  }
  if (!(scenario.timeout_s > 0)) return wrong("timeout_s", std::to_string(scenario.timeout_s), "more than 0");
  if (!(scenario.network.loss >= 0 && scenario.network.loss < 1)) {
    return wrong("loss", std::to_string(scenario.network.loss), "0 to less than 1");
  }
  if (scenario.record_bytes < 0 || scenario.record_bytes > static_cast<int>(kMaxTreeRecordBytes)) {
    return wrong("record_bytes", std::to_string(scenario.record_bytes), "0 to " + std::to_string(kMaxTreeRecordBytes));
  }
  RankSet named;
  for (const Fault& fault : scenario.faults) {
    QX_RETURN_IF_ERROR(check_fault(fault, ranks));
    if (named.contains(fault.rank)) {
      return invalid_argument("rank " + std::to_string(fault.rank) + " has two faults, expected one");
    }
    named.insert(fault.rank);
  }
  return ok_status();
}

}  // namespace

Result<Fault> parse_fault(const std::string& text) {
  const Status wrong =
      invalid_argument("fault is '" + text +
                       "', expected RANK@never, RANK@PHASE, RANK@stop:PHASE (listening, greeting, attached, ready), "
                       "RANK@late:SECONDS, RANK@claims:OTHER or RANK@world:SIZE");
  const size_t at = text.find('@');
  Fault fault;
  if (at == std::string::npos || !parse_number(text.substr(0, at), fault.rank)) return wrong;
  const std::string what = text.substr(at + 1);
  const size_t colon = what.find(':');
  const std::string kind = what.substr(0, colon);
  const std::string value = colon == std::string::npos ? "" : what.substr(colon + 1);
  if (what == "never") return fault;
  if (kind == "late") {
    fault.kind = Fault::Kind::kStartsLate;
    if (!parse_number(value, fault.late_s) || !(fault.late_s >= 0)) return wrong;
    return fault;
  }
  if (kind == "claims" || kind == "world") {
    fault.kind = kind == "claims" ? Fault::Kind::kClaims : Fault::Kind::kWorldSize;
    if (!parse_number(value, fault.value) || fault.value < 0) return wrong;
    return fault;
  }
  if (kind == "stop") fault.kind = Fault::Kind::kStops;
  constexpr std::pair<const char*, FaultPhase> kPhases[] = {{"listening", FaultPhase::kListening},
                                                            {"greeting", FaultPhase::kGreeting},
                                                            {"attached", FaultPhase::kAttached},
                                                            {"ready", FaultPhase::kReady}};
  for (const auto& [name, phase] : kPhases) {
    if ((kind == "stop" ? value : what) != name) continue;
    fault.phase = phase;
    return fault;
  }
  return wrong;
}

BootstrapSimulation::State::State(const BootstrapScenario& given)
    : scenario(given), network(scenario.network), random(scenario.seed) {
  place_ranks();
  num_roots = scenario.num_roots > 0 ? scenario.num_roots : default_num_roots(static_cast<int>(hosts.size()));
  num_roots = std::min(num_roots, scenario.num_ranks);
  schedule_starts();
}

void BootstrapSimulation::State::place_ranks() {
  ranks.resize(static_cast<size_t>(scenario.num_ranks));
  if (scenario.host_sizes.empty()) {
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      ranks[rank].host = static_cast<int>(rank) / scenario.ranks_per_host;
  } else {
    size_t rank = 0;
    for (size_t host = 0; host < scenario.host_sizes.size(); ++host) {
      for (int i = 0; i < scenario.host_sizes[host]; ++i) ranks[rank++].host = static_cast<int>(host);
    }
  }
  hosts.resize(static_cast<size_t>(ranks.back().host) + 1);
  const int cores = network.is_one_machine ? std::max(1, network.cores_per_host) : network.cores_per_host;
  for (Host& host : hosts) host.cores_busy_until.assign(static_cast<size_t>(cores), 0);
}

void BootstrapSimulation::State::schedule_starts() {
  for (const Fault& fault : scenario.faults) ranks[static_cast<size_t>(fault.rank)].fault = &fault;
  num_unsettled = scenario.num_ranks;
  std::vector<int64_t> starts;
  for (int rank = 0; rank < scenario.num_ranks; ++rank) {
    starts.push_back(nanoseconds(random.uniform() * network.start_skew_s));
  }
  const int64_t last = *std::max_element(starts.begin(), starts.end());
  first_start = INT64_MAX;
  for (int rank = 0; rank < scenario.num_ranks; ++rank) {
    Rank& starting = ranks[static_cast<size_t>(rank)];
    int64_t at = starts[static_cast<size_t>(rank)];
    if (starting.fault != nullptr && starting.fault->kind == Fault::Kind::kStartsLate) {
      at = last + nanoseconds(starting.fault->late_s);
    } else if (starting.fault != nullptr && starting.fault->kind == Fault::Kind::kDies &&
               starting.fault->phase == FaultPhase::kNeverStarts) {
      settle(starting);
      continue;
    }
    first_start = std::min(first_start, at);
    queue.schedule(at, {EventKind::kStart, 0, rank, 0, 0});
  }
}

TreeOptions BootstrapSimulation::State::options_of(int rank) const {
  TreeOptions options;
  options.rank = rank;
  options.world_size = scenario.num_ranks;
  options.job_id = 0x51;
  options.generation = 1;
  options.instance = static_cast<uint64_t>(rank) + 1;
  options.pid = 1000 + rank;
  const Fault* fault = ranks[static_cast<size_t>(rank)].fault;
  if (fault != nullptr && fault->kind == Fault::Kind::kClaims) options.rank = fault->value;
  if (fault != nullptr && fault->kind == Fault::Kind::kWorldSize) options.world_size = fault->value;
  options.num_roots = std::min(num_roots, options.world_size);
  options.host_endpoint = "@host-" + std::to_string(ranks[static_cast<size_t>(rank)].host);
  options.local_endpoint = "@rank-" + std::to_string(rank);
  options.endpoints = {"10." + std::to_string(rank >> 16) + "." + std::to_string(rank >> 8 & 255) + "." +
                       std::to_string(rank & 255) + ":7000"};
  options.record.assign(static_cast<size_t>(scenario.record_bytes), static_cast<std::byte>(rank));
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(scenario.timeout_s * 1e3));
  return options;
}

void BootstrapSimulation::State::record_costs(Rank& rank) const {
  if (rank.node == nullptr) return;
  const TreeNode::Statistics& costs = rank.node->statistics();
  rank.outcome.bytes_received = static_cast<int64_t>(costs.bytes_received);
  rank.outcome.num_children = costs.num_children;
  rank.outcome.connections = costs.num_children + (costs.depth > 0);
  rank.outcome.most_connections = costs.most_connections;
  rank.outcome.depth = costs.depth;
}

BootstrapReport BootstrapSimulation::State::report() const {
  BootstrapReport report;
  report.num_roots = num_roots;
  report.num_hosts = static_cast<int>(hosts.size());
  report.num_events = queue.num_popped();
  std::vector<double> ready;
  std::map<std::string, BootstrapReport::Failure> failures;
  double bytes = 0;
  for (size_t index = 0; index < ranks.size(); ++index) {
    const Rank& rank = ranks[index];
    const RankOutcome& outcome = rank.outcome;
    if (rank.node != nullptr) {
      report.num_connects += rank.node->statistics().num_connects;
      report.num_messages += rank.node->statistics().messages_sent;
    }
    if (outcome.ready_s >= 0) ready.push_back(outcome.ready_s);
    report.depth = std::max(report.depth, outcome.depth);
    report.fan_in = std::max(report.fan_in, outcome.num_children);
    bytes += static_cast<double>(outcome.bytes_received);
    const int root = static_cast<int>(static_cast<int64_t>(index) * num_roots / scenario.num_ranks);
    const bool is_root = root_rank(root, scenario.num_ranks, num_roots) == static_cast<int>(index);
    const bool is_leader = hosts[static_cast<size_t>(rank.host)].leader == static_cast<int>(index);
    int& most = is_root ? report.most_connections_root : report.most_connections_rank;
    most = std::max(most, outcome.connections);
    int64_t& most_bytes = is_root ? report.bytes_root : is_leader ? report.bytes_leader : report.bytes_rank;
    most_bytes = std::max(most_bytes, outcome.bytes_received);
    if (outcome.failed_s < 0) continue;
    auto [failure, is_new] = failures.try_emplace(outcome.failure.message());
    if (is_new) failure->second = {outcome.failure, outcome.failure_ranks, 0, outcome.failed_s, outcome.failed_s};
    ++failure->second.num_ranks;
    failure->second.first_s = std::min(failure->second.first_s, outcome.failed_s);
    failure->second.last_s = std::max(failure->second.last_s, outcome.failed_s);
  }
  report.mean_bytes = bytes / scenario.num_ranks;
  report.num_ready = static_cast<int>(ready.size());
  if (!ready.empty()) {
    std::sort(ready.begin(), ready.end());
    report.ready_s = ready.back();
    report.median_ready_s = ready[ready.size() / 2];
  }
  for (auto& [text, failure] : failures) report.failures.push_back(std::move(failure));
  std::sort(report.failures.begin(), report.failures.end(), [](const auto& a, const auto& b) {
    return a.num_ranks != b.num_ranks ? a.num_ranks > b.num_ranks : a.status.message() < b.status.message();
  });
  return report;
}

Result<std::unique_ptr<BootstrapSimulation>> BootstrapSimulation::create(const BootstrapScenario& scenario) {
  QX_RETURN_IF_ERROR(check(scenario));
  return std::unique_ptr<BootstrapSimulation>(new BootstrapSimulation(std::make_unique<State>(scenario)));
}

BootstrapSimulation::BootstrapSimulation(std::unique_ptr<State> state) : state_(std::move(state)) {}
BootstrapSimulation::~BootstrapSimulation() = default;

void BootstrapSimulation::run() {
  while (state_->num_unsettled > 0 && !state_->queue.empty()) state_->step();
  run_for(state_->scenario.aftermath_s);
}

void BootstrapSimulation::run_for(double seconds) {
  state_->run_until(state_->queue.now() + nanoseconds(seconds));
  for (State::Rank& rank : state_->ranks) state_->record_costs(rank);
}

double BootstrapSimulation::now_s() const {
  return static_cast<double>(state_->queue.now() - state_->first_start) * 1e-9;
}

BootstrapReport BootstrapSimulation::report() const { return state_->report(); }

const RankOutcome& BootstrapSimulation::outcome(int rank) const {
  return state_->ranks[static_cast<size_t>(rank)].outcome;
}

int BootstrapSimulation::host_of(int rank) const { return state_->ranks[static_cast<size_t>(rank)].host; }

TreeNode* BootstrapSimulation::node(int rank) { return state_->ranks[static_cast<size_t>(rank)].node.get(); }

void BootstrapSimulation::kill(int rank) { state_->die(rank); }

void BootstrapSimulation::set_listener(std::function<void(int rank, TreeAction& action)> listener) {
  state_->listener = std::move(listener);
}

}  // namespace qx::collectives
