#include "quincunx/apps/plan_comm.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "quincunx/collectives/simulation/bootstrap_simulation.h"
#include "quincunx/collectives/simulation/gloo_model.h"
#include "quincunx/collectives/simulation/virtual_ranks.h"

namespace qx::apps {
namespace {

using collectives::BootstrapReport;
using collectives::BootstrapScenario;
using collectives::BootstrapSimulation;
using collectives::RankOutcome;
using collectives::VirtualRanksReport;
using nlohmann::ordered_json;

// What happens after all are ready or have failed: a death is spread within that time.
constexpr double kAftermathSeconds = 2;

Result<BootstrapScenario> scenario_of(const PlanCommArguments& arguments) {
  if (arguments.cores < 1) {
    return invalid_argument("--cores is " + std::to_string(arguments.cores) + ", expected 1 or more");
  }
  if (!(arguments.start_skew_s >= 0) || !(arguments.round_trip_us >= 0)) {
    return invalid_argument("--skew and --round-trip-us are times, expected 0 or more");
  }
  BootstrapScenario scenario;
  scenario.num_ranks = arguments.num_ranks;
  scenario.ranks_per_host = arguments.ranks_per_host;
  scenario.num_roots = arguments.num_roots;
  scenario.seed = arguments.seed;
  scenario.timeout_s = arguments.timeout_s;
  scenario.network.start_skew_s = arguments.start_skew_s;
  scenario.network.round_trip_s = arguments.round_trip_us * 1e-6;
  scenario.network.loss = arguments.loss;
  scenario.network.is_one_machine = arguments.one_machine;
  if (arguments.one_machine) scenario.network.cores_per_host = arguments.cores;
  // Virtual ranks share one process, which is awake.
  if (arguments.one_machine && !arguments.processes) {
    scenario.network.start_s = scenario.network.wakeup_s = scenario.network.first_proof_s = 0;
  }
  for (const std::string& text : arguments.faults) {
    QX_ASSIGN_OR_RETURN(const collectives::Fault fault, collectives::parse_fault(text));
    scenario.faults.push_back(fault);
  }
  if (!scenario.faults.empty()) scenario.aftermath_s = kAftermathSeconds;
  return scenario;
}

// Who was told of the death of a rank, and when the last one was.
struct Told {
  int num_ranks = 0;
  double last_s = -1;
};

Told told_of(const BootstrapSimulation& simulation, int num_ranks, int rank) {
  Told told;
  for (int other = 0; other < num_ranks; ++other) {
    const RankOutcome& outcome = simulation.outcome(other);
    if (!outcome.died.contains(rank)) continue;
    ++told.num_ranks;
    told.last_s = std::max(told.last_s, outcome.last_died_s);
  }
  return told;
}

ordered_json as_json(const PlanCommArguments& arguments, const BootstrapSimulation& simulation,
                     const BootstrapScenario& scenario, double wall_s) {
  const BootstrapReport report = simulation.report();
  ordered_json json = {
      {"algorithm", arguments.algorithm},
      {"ranks", arguments.num_ranks},
      {"hosts", report.num_hosts},
      {"roots", report.num_roots},
      {"ready_ranks", report.num_ready},
      {"bootstrap_s", report.ready_s},
      {"median_s", report.median_ready_s},
      {"depth", report.depth},
      {"connections", {{"rank", report.most_connections_rank}, {"root", report.most_connections_root}}},
      {"fan_in", report.fan_in},
      {"bytes_received",
       {{"mean", report.mean_bytes},
        {"rank", report.bytes_rank},
        {"leader", report.bytes_leader},
        {"root", report.bytes_root}}},
      {"connects", report.num_connects},
      {"messages", report.num_messages},
      {"events", report.num_events},
      {"wall_s", wall_s},
      {"failures", ordered_json::array()},
      {"faults", ordered_json::array()},
  };
  for (const BootstrapReport::Failure& failure : report.failures) {
    json["failures"].push_back({{"ranks", failure.num_ranks},
                                {"missing", failure.missing.to_string(4096)},
                                {"first_s", failure.first_s},
                                {"last_s", failure.last_s},
                                {"error", failure.status.to_string()}});
  }
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    const int rank = scenario.faults[i].rank;
    const Told told = told_of(simulation, arguments.num_ranks, rank);
    json["faults"].push_back({{"fault", arguments.faults[i]},
                              {"rank", rank},
                              {"died_s", simulation.outcome(rank).died_s},
                              {"told_ranks", told.num_ranks},
                              {"told_s", told.last_s}});
  }
  return json;
}

Result<VirtualRanksReport> measure(const PlanCommArguments& arguments) {
  if (!arguments.faults.empty()) return invalid_argument("--fault is for the simulation, not for --measure");
  collectives::VirtualRanksOptions options;
  options.num_ranks = arguments.num_ranks;
  options.ranks_per_host = arguments.ranks_per_host;
  options.num_roots = arguments.num_roots;
  options.num_threads = std::min(arguments.cores, arguments.num_ranks);
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(arguments.timeout_s * 1e3));
  return collectives::run_virtual_ranks(options);
}

ordered_json as_json(const VirtualRanksReport& report) {
  return {
      {"bootstrap_s", report.ready_s},   {"processor_s", report.processor_s},
      {"depth", report.depth},           {"connections", {{"rank", report.most_connections_rank}}},
      {"fan_in", report.fan_in},         {"bytes_received", {{"mean", report.mean_bytes}, {"rank", report.bytes_rank}}},
      {"connects", report.num_connects}, {"messages", report.num_messages}};
}

void print_faults(const PlanCommArguments& arguments, const BootstrapSimulation& simulation,
                  const BootstrapScenario& scenario, std::ostream& out) {
  for (const BootstrapReport::Failure& failure : simulation.report().failures) {
    out << "failed            " << failure.num_ranks << " ranks, " << failure.first_s << " to " << failure.last_s
        << " s after the first start: " << failure.status.to_string() << "\n";
  }
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    const int rank = scenario.faults[i].rank;
    out << "fault             " << arguments.faults[i];
    if (simulation.outcome(rank).died_s >= 0) {
      const Told told = told_of(simulation, arguments.num_ranks, rank);
      out << ": at " << simulation.outcome(rank).died_s << " s; " << told.num_ranks << " ranks were told that it died";
      if (told.num_ranks > 0) out << ", the last at " << told.last_s << " s";
    }
    out << "\n";
  }
}

Status plan_tree(const PlanCommArguments& arguments, std::ostream& out) {
  QX_ASSIGN_OR_RETURN(const BootstrapScenario scenario, scenario_of(arguments));
  const auto start = std::chrono::steady_clock::now();
  QX_ASSIGN_OR_RETURN(const auto simulation, BootstrapSimulation::create(scenario));
  simulation->run();
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  VirtualRanksReport measured;
  if (arguments.measure) {
    QX_ASSIGN_OR_RETURN(measured, measure(arguments));
  }
  if (arguments.json) {
    ordered_json json = as_json(arguments, *simulation, scenario, wall_s);
    if (arguments.measure) json["measured"] = as_json(measured);
    out << json.dump(2) << "\n";
    return ok_status();
  }
  const BootstrapReport report = simulation->report();
  out << "ranks             " << arguments.num_ranks << " on " << report.num_hosts << " hosts, " << report.num_roots
      << (report.num_roots == 1 ? " root\n" : " roots\n");
  out << "ready             " << report.num_ready << " ranks, the last " << report.ready_s
      << " s after the first start, the median " << report.median_ready_s << " s\n";
  out << "depth             " << report.depth << " connections from the farthest rank to the top\n";
  out << "connections       " << report.most_connections_rank << " at most for a rank, " << report.most_connections_root
      << " for a root; fan-in " << report.fan_in << "\n";
  out << "bytes received    " << report.bytes_rank << " at most by a rank, " << report.bytes_leader
      << " by the leader of a host, " << report.bytes_root << " by a root, " << static_cast<int64_t>(report.mean_bytes)
      << " on average\n";
  out << "in all            " << report.num_connects << " connects, " << report.num_messages << " messages\n";
  out << "simulated         " << report.num_events << " events in " << wall_s << " s\n";
  print_faults(arguments, *simulation, scenario, out);
  if (arguments.measure) {
    out << "measured          " << measured.ready_s << " s, " << measured.processor_s << " s of processor time, depth "
        << measured.depth << ", fan-in " << measured.fan_in << ", " << measured.most_connections_rank
        << " connections and " << measured.bytes_rank << " bytes at most for a rank, " << measured.num_connects
        << " connects, " << measured.num_messages << " messages\n";
  }
  return ok_status();
}

Status plan_gloo(const PlanCommArguments& arguments, std::ostream& out) {
  if (arguments.num_ranks < 1) {
    return invalid_argument("--ranks is " + std::to_string(arguments.num_ranks) + ", expected 1 or more");
  }
  if (!arguments.faults.empty()) {
    return invalid_argument("--fault is for the tree; " + arguments.algorithm + " is an estimate without faults");
  }
  const collectives::GlooEstimate estimate =
      collectives::estimate_gloo(arguments.num_ranks, arguments.algorithm == "gloo-batched");
  if (arguments.json) {
    const ordered_json json = {{"algorithm", arguments.algorithm},
                               {"ranks", arguments.num_ranks},
                               {"bootstrap_s", estimate.total_s},
                               {"store_s", estimate.store_s},
                               {"mesh_s", estimate.mesh_s},
                               {"connections", {{"rank", estimate.connections_rank}}},
                               {"bytes_received", {{"rank", estimate.bytes_rank}}},
                               {"server_bytes", estimate.server_bytes}};
    out << json.dump(2) << "\n";
    return ok_status();
  }
  out << "ranks             " << arguments.num_ranks << " with " << arguments.algorithm << ", estimated\n";
  out << "ready             " << estimate.total_s << " s: " << estimate.store_s << " s at the store, "
      << estimate.mesh_s << " s for the mesh, the rest until all have started\n";
  out << "connections       " << estimate.connections_rank << " for a rank\n";
  out << "bytes received    " << estimate.bytes_rank << " by a rank, " << estimate.server_bytes
      << " sent by the store\n";
  return ok_status();
}

}  // namespace

Status plan_comm(const PlanCommArguments& arguments, std::ostream& out) {
  if (arguments.algorithm == "tree") return plan_tree(arguments, out);
  if (arguments.algorithm == "gloo" || arguments.algorithm == "gloo-batched") return plan_gloo(arguments, out);
  return invalid_argument("--algorithm is " + arguments.algorithm + ", expected tree, gloo or gloo-batched");
}

}  // namespace qx::apps
