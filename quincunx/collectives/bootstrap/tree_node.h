// One rank's part of the bootstrap tree, as a state machine that does no input or output itself. Whoever drives it owns
// sockets and clock: it carries out the actions, and reports what came of them and when.
//
// The tree: ranks of a host elect a leader; the leader gives each of them its parent inside the host. Leaders ask a
// root, which gives each of them its parent among the leaders. Roots form a tree of their own below root 0. Who is
// there is summed up on the way to the top; that all are there, or who is missing, flows down. After that the tree
// stays: it spreads deaths, finds records on demand and carries queries. An orphan asks its leader or root for another
// parent.
//
// Not thread safe. Memory is bounded by the number of ranks and connections; every message is checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/bootstrap/rank_set.h"

namespace qx::collectives {

inline constexpr size_t kMaxTreeRecordBytes = 1024;
inline constexpr size_t kMaxTreePayloadBytes = 1024;  // of a query and of an answer
inline constexpr size_t kMaxTreeTokenBytes = 64;
inline constexpr int kLeadersPerRoot = 128;

struct TreeOptions {
  int rank = 0;
  int world_size = 1;
  uint64_t job_id = 0;      // the same on all ranks; another job is told so and turned away
  uint64_t generation = 0;  // the same on all ranks of one start of the job
  uint64_t instance = 0;    // random: tells two processes that claim one rank apart
  int64_t pid = 0;          // for messages only
  int num_roots = 1;        // the same on all ranks
  // What the ranks of a host elect their leader by: whoever binds it is leader. "@name", an abstract unix socket.
  std::string host_endpoint;
  // Where the ranks of this host reach this one: "@name" or numeric.
  std::string local_endpoint;
  // Where other hosts reach it, best first: numeric.
  std::vector<std::string> endpoints;
  // Handed to whoever resolves this rank; at most kMaxTreeRecordBytes.
  std::vector<std::byte> record;
  // From start until all ranks are there. Afterwards nothing here expires.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
};

// Roots are ranks: root i is rank root_rank(i). A root takes no part in the election of its host.
int default_num_roots(int num_leaders);
int root_rank(int root, int world_size, int num_roots);

using TreeConnection = uint32_t;

// What the driver is to do. Fields that a kind does not name are empty.
struct TreeAction {
  enum class Kind : uint8_t {
    kBindHost,    // bind and listen on host_endpoint; then on_host_bound(true), or false where it is taken
    kLookUpRoot,  // rank: of a root. Find where it listens; then on_root_found. No answer while it is not known
    kConnect,     // connection, endpoint. Then on_connected or on_closed
    kSend,        // connection, bytes: in order, behind all that was sent before
    kClose,       // connection: after what was sent has left. No report follows
    kReady,       // all ranks are there; once
    kFailed,      // status, ranks: missing or dead. Once. The node still spreads what it knows until it is destroyed
    kPeerDied,    // rank, status: who saw it and how. Once for each rank
    kResolved,    // rank, and bytes: its record; or status: kUnavailable where it has died, kNotFound: has left
    kQuery,       // rank: who asks; query; bytes. Call answer() with the same query and rank
    kAnswers,     // query, answers: ours has come back; ranks: those that did not answer in time
  };
  // Ranks that gave the same answer.
  struct Answer {
    std::vector<std::byte> bytes;
    RankSet ranks;
  };
  Kind kind = Kind::kReady;
  TreeConnection connection = 0;
  int rank = -1;
  uint32_t query = 0;
  std::string endpoint;
  std::vector<std::byte> bytes;
  RankSet ranks;
  std::vector<Answer> answers;
  Status status;
};

struct TreeProgress {
  enum class Phase : uint8_t { kElecting, kConnecting, kAttached, kReady, kFailed };
  Phase phase = Phase::kElecting;
  // Ranks that have not come, as far as known: the top's knowledge where it has been heard, else all but this subtree.
  RankSet missing;
  std::string text;  // "connecting to root 0 (rank 0) at 10.0.0.1:4711: connection refused"
};

class TreeNode {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  // As a peer of this many children may be reached at once.
  struct Limits {
    int root_children = 128;  // of a root, child roots included
    int root_child_roots = 32;
    int children = 3;  // of a leader among leaders, and of everyone inside a host
  };

  // kInvalidArgument names the option that is wrong.
  static Result<std::unique_ptr<TreeNode>> create(TreeOptions options);
  ~TreeNode();
  TreeNode(const TreeNode&) = delete;
  TreeNode& operator=(const TreeNode&) = delete;

  void start(Time now);
  // What to do next, in order; to be emptied after every call below.
  std::optional<TreeAction> take_action();
  // When on_timer wants to be called; Time::max() for never. Changes with every call.
  Time next_timer() const;
  void on_timer(Time now);

  void on_host_bound(bool won, Time now);
  // Numeric endpoints, best first. May come again, when they have changed.
  void on_root_found(int rank, std::vector<std::string> endpoints, Time now);
  // A peer has connected to any of our endpoints; the result names the connection from now on.
  TreeConnection on_accepted(Time now);
  void on_connected(TreeConnection connection, Time now);
  // Bytes in order, cut anywhere.
  void on_bytes(TreeConnection connection, std::span<const std::byte> bytes, Time now);
  // It could not be made, or has ended: "connection refused".
  void on_closed(TreeConnection connection, std::string_view reason, Time now);

  // What ranks of different hosts show each other, at most kMaxTreeTokenBytes: the node only hands it to those below
  // it, once all ranks are there. Whoever knows none learns it thus.
  void set_token(std::string token);
  const std::string& token() const;

  // Asks for the record of a rank; kResolved follows, at once where it is known. Not before kReady.
  void resolve(int rank, Time now);
  // It leads nowhere: the next resolve asks again.
  void forget_record(int rank);
  // Asks every rank; kAnswers follows within `patience`. Not before kReady. The id is in the answer.
  uint32_t query(std::span<const std::byte> payload, std::chrono::milliseconds patience, Time now);
  void answer(int asker, uint32_t query, std::span<const std::byte> payload, Time now);
  // The driver has seen this process die (pidfd), or lost its data connection.
  void report_dead(int rank, std::string_view reason, Time now);
  // Says goodbye on all connections and closes them: peers take it for no death.
  void leave(Time now);

  TreeProgress progress() const;
  const TreeOptions& options() const;
  bool is_ready() const;
  // It has a parent and no children: before all are there too, the others come together without it.
  bool is_leaf() const;
  bool has_children() const;
  // It has no parent and looks for none.
  bool is_top() const;
  // It had better stay: others hear of each other through it (its children; where it is the top, all that have neither
  // left nor died, as those whose parent has left come to it), or nobody above would hear that it leaves.
  bool is_needed() const;
  // Whoever was accepted and has not said who it is.
  int num_strangers() const;
  // Those that came until then.
  void drop_strangers(Time came_until);
  // Ranks known to have died.
  const RankSet& dead() const;
  struct Statistics {
    int depth = 0;  // connections to the top
    int num_children = 0;
    int most_connections = 0;  // at once, those of strangers included
    uint64_t num_connects = 0;
    uint64_t num_accepts = 0;
    uint64_t messages_sent = 0;
    uint64_t messages_received = 0;
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
    uint64_t num_dropped = 0;  // connections that did not speak the protocol, or were of another job
  };
  const Statistics& statistics() const;

 private:
  struct State;
  explicit TreeNode(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace qx::collectives
