// The inside of TreeNode. Its functions stand in tree_node.cpp (driver's calls), tree_climb.cpp (finding a parent),
// tree_children.cpp (giving others one), tree_membership.cpp (who is there, who has died) and tree_query.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "quincunx/collectives/bootstrap/parent_table.h"
#include "quincunx/collectives/bootstrap/tree_message.h"
#include "quincunx/collectives/bootstrap/tree_node.h"

namespace qx::collectives {

struct TreeNode::State {
  enum class Link : uint8_t {
    kAttempt,   // we connect
    kGreeting,  // connected, our hello is sent
    kStranger,  // accepted, no hello yet
    kWelcomed,  // its hello was good; it is a child once it has said that it knows
    kChild,
    kParent,
  };
  struct Connection {
    TreeConnection id = 0;
    Link link = Link::kStranger;
    int rank = -1;
    int64_t pid = 0;
    uint64_t instance = 0;
    RankSet subtree;            // of a child
    RankSet claimed_before;     // by an earlier connection of the same process
    Endpoints endpoints;        // of a child that is a leader
    Endpoints local_endpoints;  // of a child inside the host
    std::vector<std::byte> partial;
  };
  struct Root {
    int rank = -1;
    Endpoints endpoints;  // empty: not known yet
    bool asked = false;
  };
  enum class Step : uint8_t { kNone, kBindHost, kLookUp, kConnect, kGreet, kWait };
  enum class Target : uint8_t { kHostLeader, kRoot, kAssigned };
  // The way to a parent.
  struct Climb {
    Step step = Step::kNone;
    Target target = Target::kRoot;
    int rank = -1;  // of the target, -1 for the leader
    Endpoints endpoints;
    size_t candidate = 0;
    TreeConnection connection = 0;
    Time due = Time::max();
    Time began;
    int num_failures = 0;
    int num_silent = 0;  // of them, connected and without an answer
    int unreachable = -1;
    std::string trouble;
  };
  // Of the top: ranks that have lost a parent and have not been seen since.
  struct Orphans {
    RankSet ranks;
    Time due;
  };
  struct Question {
    int asker = 0;
    uint32_t query = 0;
    TreeConnection from = 0;  // 0: we ask
    bool own_answer_due = true;
    std::vector<TreeConnection> outstanding;
    std::vector<AnswersMessage::Group> groups;
    Time due;
  };
  struct Resolving {
    int rank = 0;
    Time retry;
  };

  explicit State(TreeOptions options);

  // tree_node.cpp
  void start(Time now);
  Time next_timer() const;
  void on_timer(Time now);
  // Those that had until then to say who they are.
  void drop_strangers_until(Time deadline);
  TreeConnection on_accepted(Time now);
  void on_bytes(TreeConnection id, std::span<const std::byte> bytes, Time now);
  void on_closed(TreeConnection id, std::string_view reason, Time now);
  void leave(Time now);
  Connection& add_connection(Link link);
  Connection* find(TreeConnection id);
  void forget(TreeConnection id);
  // Closes and forgets.
  void close(TreeConnection id);
  TreeAction& act(TreeAction::Kind kind);
  void send(TreeConnection id, const TreeMessage& message);
  void send_to_children(const TreeMessage& message);
  // To all neighbours in the tree but `except`.
  void flood(const TreeMessage& message, TreeConnection except);
  Status handle(TreeConnection id, TreeMessage& message, Time now);
  static bool is_neighbour(const Connection& connection);
  std::string own_name() const;

  // tree_climb.cpp
  bool is_top() const { return parent == 0 && climb.step == Step::kNone; }
  void begin_climb(Time now, std::chrono::milliseconds delay);
  void bind_host();
  void on_host_bound(bool won, Time now);
  void on_root_found(int rank, Endpoints endpoints, Time now);
  void pick_root(Time now);
  std::vector<int> root_order() const;
  Root& root_of(int rank);
  size_t which_root(size_t num_candidates, Time now) const;
  void aim(Target target, int rank, Endpoints endpoints, Time now);
  void attempt(Time now);
  void on_connected(TreeConnection id, Time now);
  void attempt_failed(std::string_view reason, Time now);
  void wait_and_retry(Time now);
  void on_climb_due(Time now);
  std::string target_name() const;
  Status on(Connection& from, WelcomeMessage& message, Time now);
  Status on(Connection& from, RedirectMessage& message, Time now);
  Status on(Connection& from, RejectMessage& message, Time now);

  // tree_children.cpp
  Status on(Connection& from, HelloMessage& message, Time now);
  // What is wrong with a hello for good, and whether the job cannot come up because of it.
  struct Objection {
    Status status;
    RankSet ranks;
    bool ends_job = false;
  };
  std::optional<Objection> object(const HelloMessage& hello) const;
  std::optional<Objection> find_conflict(const HelloMessage& hello) const;
  std::optional<Objection> find_duplicate(const HelloMessage& hello) const;
  static bool is_same_process(const Connection& connection, const HelloMessage& hello);
  void reject(TreeConnection id, const Objection& objection, bool final);
  ParentTable& table_for(TreeRole role);
  void welcome(Connection& child, HelloMessage& hello);
  Status on(Connection& from, JoinedMessage& message, Time now);

  // tree_membership.cpp
  Status claim(Connection& child, const RankSet& ranks, Time now);
  Status on(Connection& from, DetachedMessage& message, Time now);
  Status on(Connection& from, ProgressMessage& message, Time now);
  Status on(Connection& from, CompleteMessage& message, Time now);
  Status on(Connection& from, DiedMessage& message, Time now);
  Status on(Connection& from, FailedMessage& message, Time now);
  Status on(Connection& from, GoodbyeMessage& message, Time now);
  Status on(Connection& from, SuccessorsMessage& message, Time now);
  void schedule_joined(Time now);
  void flush_joined(Time now);
  void complete(int depth);
  void complete_if_all_came();
  // Of the top, once all have come: tells the others whenever they change.
  void choose_successors();
  void lose_neighbour(TreeConnection id, bool has_left, std::string_view reason, Time now);
  void detach(const RankSet& moved, const RankSet& gone_ranks, Time now);
  void expect_back(const RankSet& ranks, Time now);
  void come_back(const RankSet& ranks, Time now);
  void give_up_orphans(Time now);
  void mark_dead(const RankSet& ranks, const std::string& text, TreeConnection source, Time now);
  void flush_died(Time now);
  void fail(const Status& status, const RankSet& ranks, TreeConnection source);
  // A node that has found no parent yet must first be heard: whoever it knows to be dead would be missed otherwise.
  void fail_when_heard(const Status& status, const RankSet& ranks, TreeConnection source, Time now);
  void fail_for_deaths(const std::string& text, Time now);
  void fail_postponed();
  Clock::duration scaled(std::chrono::milliseconds usual) const;
  void push_progress(Time now);
  TreeProgress progress() const;
  Status expired() const;

  // tree_query.cpp
  void resolve(int rank, Time now);
  void finish_resolving(int rank, const Status& status, std::span<const std::byte> record);
  void retry_resolving(Time now);
  Status gone(int rank) const;
  // Towards the rank; false where the way is not known.
  bool route(int rank, const TreeMessage& message, TreeConnection from);
  Status on(Connection& from, ResolveMessage& message, Time now);
  Status on(Connection& from, ResolvedMessage& message, Time now);
  uint32_t query(std::span<const std::byte> payload, std::chrono::milliseconds patience, Time now);
  Status on(Connection& from, QueryMessage& message, Time now);
  Status on(Connection& from, AnswersMessage& message, Time now);
  void ask(Question question, const QueryMessage& message, Time now);
  void answer(int asker, uint32_t query, std::span<const std::byte> payload);
  void drop_from_questions(TreeConnection id);
  void finish_questions(Time now);

  const TreeOptions options;
  const Limits limits;
  TreeRole role = TreeRole::kLocal;
  int root = -1;  // index, of a root
  bool has_host_name = false;

  std::vector<TreeAction> actions;
  size_t num_taken = 0;  // of them
  std::vector<std::unique_ptr<Connection>> connections;
  TreeConnection next_id = 1;
  TreeConnection parent = 0;
  std::vector<std::pair<Time, TreeConnection>> handshakes;  // strangers, oldest first
  Climb climb;
  std::vector<Root> roots;                    // those that were asked for, and successors of the top
  std::unique_ptr<ParentTable> local_table;   // of a leader
  std::unique_ptr<ParentTable> leader_table;  // of a root

  Time started;
  Time deadline = Time::max();
  bool ready = false;
  bool failed = false;
  bool has_left = false;
  Status failure;
  RankSet failure_ranks;
  Status postponed;
  RankSet postponed_ranks;  // empty: the dead, as far as they are known then
  Time postponed_due = Time::max();
  int depth = 0;
  RankSet subtree;  // this rank and all below
  RankSet unsent;   // of the subtree, what the parent has not been told
  Time joined_due = Time::max();
  Time last_joined;
  std::chrono::microseconds joined_interval{0};
  RankSet dead, left;
  RankSet left_below;  // those that were in the subtree
  std::vector<Orphans> orphans;
  RankSet unsent_dead;
  std::string unsent_dead_text;
  TreeConnection unsent_dead_source = 0;  // the neighbour that has told of all of them
  Time died_due = Time::max();
  Time last_died;
  bool knows_missing = false;
  RankSet missing;
  std::string missing_text;
  Time progress_due = Time::max();
  SuccessorsMessage succession;
  std::string token;

  std::unordered_map<int, std::vector<std::byte>> records;
  std::vector<Resolving> resolving;
  uint32_t next_query = 1;
  std::vector<Question> questions;
  Statistics statistics;
};

}  // namespace qx::collectives
