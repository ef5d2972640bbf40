// The inside of BootstrapSimulation: simulated hosts, sockets and processors (simulated_network.cpp), and the scenario
// and its report (bootstrap_simulation.cpp).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/collectives/simulation/bootstrap_simulation.h"
#include "quincunx/planning/simulation/event_queue.h"

namespace qx::collectives {

struct BootstrapSimulation::State {
  enum class EventKind : uint8_t {
    kStart,      // rank
    kTimer,      // rank
    kArrival,    // channel, payload: whether it is local. A connection has reached the listener
    kConnected,  // channel: and who made it knows
    kRefused,    // rank, payload: the connection
    kData,       // channel, side: of the receiver; payload
    kClosed,     // channel, side: of who is told
    kBound,      // rank, payload: whether it won
    kRootFound,  // rank, payload: the root's rank
  };
  struct Event {
    EventKind kind = EventKind::kStart;
    uint8_t side = 0;
    int rank = 0;
    uint32_t channel = 0;
    uint32_t payload = 0;
  };
  struct Socket {
    TreeConnection id = 0;
    uint32_t channel = 0;
    uint8_t side = 0;
  };
  // Side 0 has made the connection.
  struct Channel {
    int ranks[2] = {-1, -1};
    TreeConnection ids[2] = {0, 0};
    int64_t last_arrival[2] = {0, 0};  // at that side
    bool open[2] = {true, true};
  };
  struct Rank {
    std::unique_ptr<TreeNode> node;
    int host = 0;
    bool is_stopped = false;
    bool has_proven = false;  // has used TCP
    bool is_settled = false;
    int64_t timer_at = INT64_MAX;  // the earliest event that will look at the node's timer
    int64_t busy_until = 0;
    const Fault* fault = nullptr;
    std::vector<Socket> sockets;  // in order of id
    RankOutcome outcome;
  };
  struct Host {
    int leader = -1;  // who holds the name
    int64_t sending_until = 0;
    int64_t receiving_until = 0;
    std::vector<int64_t> cores_busy_until;
  };

  explicit State(const BootstrapScenario& given);

  // bootstrap_simulation.cpp
  void place_ranks();
  void schedule_starts();
  TreeOptions options_of(int rank) const;
  void record_costs(Rank& rank) const;
  BootstrapReport report() const;

  // simulated_network.cpp
  void step();
  void step_of(Channel& channel, const Event& event);  // of those that have one
  void run_until(int64_t end);
  void start(int rank);
  // Lets the node act at `time`, after `cost_s` of processor time.
  template <typename Use>
  void use_node(int rank, double cost_s, Use&& use);
  double proof_cost(Rank& rank, bool is_local) const;
  int64_t charge(Rank& rank, int64_t time, double cost_s);
  void carry_out(int rank, int64_t time);
  void bind_host(int rank, int64_t time);
  void connect(int rank, const TreeAction& action, int64_t time);
  void send(int rank, TreeAction& action, int64_t time);
  void close(int rank, TreeConnection id, int64_t time);
  void take_note(int rank, TreeAction& action, int64_t time);
  void settle(Rank& rank);
  void apply_fault(int rank);
  bool has_reached(const Rank& rank, FaultPhase phase) const;
  void die(int rank);
  void schedule_timer(int rank);
  int listener_of(int rank, const std::string& endpoint) const;
  int64_t delay(int from, int to) const;
  bool is_up(int rank) const;
  Socket* find_socket(Rank& rank, TreeConnection id);
  uint32_t store(std::vector<std::byte> bytes);

  const BootstrapScenario scenario;
  const NetworkModel& network;
  planning::EventQueue<Event> queue;
  planning::SimulationRandom random;
  std::vector<Rank> ranks;
  std::vector<Host> hosts;
  std::vector<Channel> channels;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<uint32_t> free_payloads;
  int num_roots = 1;
  int num_unsettled = 0;
  int64_t first_start = 0;
  std::function<void(int, TreeAction&)> listener;
};

}  // namespace qx::collectives
