// Thousands of TreeNodes under a virtual clock: how long a job takes to come up, what it costs, and what its ranks say
// when some of them fail. Each node is the one that real jobs run; sockets, hosts and time are simulated. The same
// options give the same run, to the last bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/bootstrap/tree_node.h"
#include "quincunx/collectives/simulation/network_model.h"

namespace qx::collectives {

// When a rank that fails does so.
enum class FaultPhase : uint8_t {
  kNeverStarts,
  kListening,  // has started, and sent nothing
  kGreeting,   // has said hello to somebody
  kAttached,   // has a parent, or is a root: not all are there
  kReady,      // all are there
};
struct Fault {
  enum class Kind : uint8_t {
    kDies,
    kStops,       // as SIGSTOP does
    kStartsLate,  // late_s after everybody else
    kClaims,      // was started as rank `value`
    kWorldSize,   // was started with a world size of `value`
  };
  Kind kind = Kind::kDies;
  int rank = 0;
  FaultPhase phase = FaultPhase::kNeverStarts;
  double late_s = 0;
  int value = 0;
};
// "RANK@never", "RANK@listening", "RANK@greeting", "RANK@attached", "RANK@ready" die in that phase, "RANK@stop:PHASE"
// stops in it, "RANK@late:SECONDS" starts that much later, "RANK@claims:OTHER" was started as rank OTHER, and
// "RANK@world:SIZE" with another world size.
Result<Fault> parse_fault(const std::string& text);

struct BootstrapScenario {
  int num_ranks = 1;
  // Ranks of a host are neighbours; the last host may have fewer. Or ranks of each host, which sum up to num_ranks.
  int ranks_per_host = 1;
  std::vector<int> host_sizes;
  int num_roots = 0;  // 0: one for each 128 hosts
  std::vector<Fault> faults;
  uint64_t seed = 1;
  double timeout_s = 1800;
  // Simulated time that goes on after all are ready or have failed: for what comes then.
  double aftermath_s = 0;
  int record_bytes = 200;
  NetworkModel network;
};

struct RankOutcome {
  bool started = false;
  bool alive = false;
  double started_s = -1;
  double ready_s = -1;  // since the first rank started; < 0: not
  double failed_s = -1;
  Status failure;
  RankSet failure_ranks;
  RankSet died;  // ranks of which it has been told that they died
  double last_died_s = -1;
  double died_s = -1;  // when it died itself, or stopped
  int64_t bytes_received = 0;
  int connections = 0;  // of the tree: parent and children
  int num_children = 0;
  int most_connections = 0;
  int depth = 0;
};

struct BootstrapReport {
  int num_ready = 0;
  double ready_s = 0;  // from the first start until the last rank is ready
  double median_ready_s = 0;
  int depth = 0;  // connections between the farthest rank and the top
  int num_roots = 0;
  int num_hosts = 0;
  int most_connections_rank = 0;  // of a rank that is no root, in the tree
  int most_connections_root = 0;
  int fan_in = 0;          // most children of any rank
  int64_t bytes_rank = 0;  // most that a rank that is no root and no leader has received
  int64_t bytes_leader = 0;
  int64_t bytes_root = 0;
  double mean_bytes = 0;
  uint64_t num_connects = 0;
  uint64_t num_messages = 0;
  uint64_t num_events = 0;
  // Of the ranks that failed: what they name, each once, the most frequent first.
  struct Failure {
    Status status;
    RankSet missing;
    int num_ranks = 0;
    double first_s = 0;
    double last_s = 0;
  };
  std::vector<Failure> failures;
};

class BootstrapSimulation {
 public:
  // kInvalidArgument names what is wrong with the scenario.
  static Result<std::unique_ptr<BootstrapSimulation>> create(const BootstrapScenario& scenario);
  ~BootstrapSimulation();

  // Until every rank that lives is ready or has failed, and the aftermath after that.
  void run();
  // For tests and tools: goes on for that simulated time.
  void run_for(double seconds);
  double now_s() const;

  BootstrapReport report() const;
  const RankOutcome& outcome(int rank) const;
  int host_of(int rank) const;
  // Null where the rank has not started, or has died.
  TreeNode* node(int rank);
  // Calls `use` on the node now and carries out what it wants done.
  void with_node(int rank, const std::function<void(TreeNode&, TreeNode::Time)>& use);
  void kill(int rank);
  // What nodes hand out that is no input or output: kResolved, kQuery, kAnswers.
  void set_listener(std::function<void(int rank, TreeAction& action)> listener);

 private:
  struct State;
  explicit BootstrapSimulation(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace qx::collectives
