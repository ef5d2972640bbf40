// Finding a parent: the leader of the host, or a root, and then whoever that one names.
#include <algorithm>
#include <utility>

#include "quincunx/collectives/bootstrap/tree_state.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// Where more addresses are to be tried, one that swallows packets must not hold up the others.
constexpr milliseconds kConnectTimeWithOthers{300};
constexpr milliseconds kConnectTime{3000};
// Doubles every time: a root under the storm of a start accepts some ten thousand in a second.
constexpr milliseconds kGreetTime{2000};
constexpr int kMostDoublings = 3;
// A root that is late is waited for; after that time, others take its leaders too.
constexpr milliseconds kRootPatience{1000};
// About 75 ms where connections are refused.
constexpr int kTriesOfSuccessors = 4;
constexpr milliseconds kFirstBackoff{5};
constexpr milliseconds kMostBackoff{500};
constexpr int kChildRootsPerRoot = 32;

// The same for every run, and different for ranks that failed at the same moment.
milliseconds jittered(milliseconds time, int rank, int attempt) {
  uint64_t hash = (static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(attempt)) * 0x9e3779b97f4a7c15;
  hash ^= hash >> 29;
  return time * 3 / 4 + time * static_cast<int>(hash % 256) / 512;
}

std::string joined(const Endpoints& endpoints) {
  std::string text;
  for (const std::string& endpoint : endpoints) text += (text.empty() ? "" : " or ") + endpoint;
  return text;
}

}  // namespace

void TreeNode::State::begin_climb(Time now, milliseconds delay) {
  climb = {};
  climb.began = now;
  if (delay > milliseconds(0)) {
    climb.step = Step::kWait;
    climb.due = now + jittered(delay, options.rank, 0);
    return;
  }
  if (role == TreeRole::kLocal) return bind_host();
  pick_root(now);
}

void TreeNode::State::bind_host() {
  climb.step = Step::kBindHost;
  climb.due = Time::max();
  act(TreeAction::Kind::kBindHost).endpoint = options.host_endpoint;
}

void TreeNode::State::on_host_bound(bool won, Time now) {
  if (climb.step != Step::kBindHost) return;
  if (!won) return aim(Target::kHostLeader, -1, {options.host_endpoint}, now);
  role = TreeRole::kLeader;
  has_host_name = true;
  ParentTable& table = table_for(TreeRole::kLocal);
  for (const auto& connection : connections) {
    if (connection->link != Link::kChild) continue;
    table.adopt(connection->rank, connection->instance, connection->local_endpoints);
  }
  pick_root(now);
}

// Ranks of the roots that may be the parent, best first. Empty: this rank is the top.
std::vector<int> TreeNode::State::root_order() const {
  std::vector<int> order;
  const auto consider = [&](int rank) {
    const bool is_known = std::find(order.begin(), order.end(), rank) != order.end();
    if (!is_known && !dead.contains(rank) && !left.contains(rank)) order.push_back(rank);
  };
  const auto rank_of = [&](int index) { return root_rank(index, options.world_size, options.num_roots); };
  if (root >= 0) {
    // The way up through the tree of roots, then any that stands before this one.
    RankSet way;
    for (int index = root; index > 0;) {
      index = (index - 1) / kChildRootsPerRoot;
      way.insert(index);
      consider(rank_of(index));
    }
    for (int index = 0; index < root; ++index) {
      if (!way.contains(index)) consider(rank_of(index));
    }
    return order;
  }
  const auto home = static_cast<int>(int64_t{options.rank} * options.num_roots / options.world_size);
  for (int i = 0; i < options.num_roots; ++i) {
    consider(rank_of((home + i) % options.num_roots));
    // Others are wanted only where the first does not answer.
    if (order.size() == 1 && climb.num_failures == 0) return order;
  }
  const bool has_root = !order.empty();
  for (const RedirectMessage& successor : succession.successors) {
    if (successor.rank != options.rank) {
      consider(successor.rank);
      continue;
    }
    // Those behind ask this rank. Those before it may have been on the host of the top and have fallen with it.
    if (!has_root && climb.num_failures >= kTriesOfSuccessors) order.clear();
    break;
  }
  return order;
}

// The first one again and again while it may only be late; then all in turn.
size_t TreeNode::State::which_root(size_t num_candidates, Time now) const {
  const bool is_patient = !ready && now - climb.began < scaled(kRootPatience);
  if (is_patient || num_candidates == 1) return 0;
  return static_cast<size_t>(climb.num_failures) % num_candidates;
}

void TreeNode::State::pick_root(Time now) {
  const std::vector<int> order = root_order();
  if (order.empty()) {
    climb = {};
    // The new top: all others are to come to it, unless the old one has only left.
    RankSet others = RankSet::range(0, options.world_size);
    others -= subtree;
    others -= dead;
    others -= left;
    if (dead.contains(0)) expect_back(others, now);
    choose_successors();
    return;
  }
  const size_t choice = which_root(order.size(), now);
  Root& wanted = root_of(order[choice]);
  aim(Target::kRoot, wanted.rank, wanted.endpoints, now);
}

TreeNode::State::Root& TreeNode::State::root_of(int rank) {
  for (Root& known : roots) {
    if (known.rank == rank) return known;
  }
  return roots.emplace_back(Root{rank, {}, false});
}

void TreeNode::State::aim(Target target, int rank, Endpoints endpoints, Time now) {
  climb.target = target;
  climb.rank = rank;
  climb.endpoints = std::move(endpoints);
  climb.candidate = 0;
  if (!climb.endpoints.empty()) return attempt(now);
  climb.step = Step::kLookUp;
  climb.due = now + scaled(kRootPatience);
  if (climb.trouble.empty()) climb.trouble = target_name() + " has not published where it listens";
  Root& wanted = root_of(rank);
  if (wanted.asked) return;
  wanted.asked = true;
  act(TreeAction::Kind::kLookUpRoot).rank = rank;
}

void TreeNode::State::on_root_found(int rank, Endpoints endpoints, Time now) {
  for (const std::string& endpoint : endpoints) {
    const Status status = check_tree_endpoint(endpoint);
    if (!status.ok()) return fail(status, {rank}, 0);
  }
  root_of(rank).endpoints = endpoints;
  if (climb.step == Step::kLookUp && climb.rank == rank && !endpoints.empty()) {
    climb.trouble.clear();
    aim(Target::kRoot, rank, std::move(endpoints), now);
  }
}

void TreeNode::State::attempt(Time now) {
  Connection& connection = add_connection(Link::kAttempt);
  ++statistics.num_connects;
  climb.step = Step::kConnect;
  climb.connection = connection.id;
  const bool has_others = climb.candidate + 1 < climb.endpoints.size();
  climb.due = now + (has_others ? kConnectTimeWithOthers : kConnectTime);
  TreeAction& action = act(TreeAction::Kind::kConnect);
  action.connection = connection.id;
  action.endpoint = climb.endpoints[climb.candidate];
}

void TreeNode::State::on_connected(TreeConnection id, Time now) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->link != Link::kAttempt) return;
  connection->link = Link::kGreeting;
  climb.step = Step::kGreet;
  const Clock::duration greet_time = ready ? kGreetTime : scaled(kGreetTime);
  climb.due = now + greet_time * (1 << std::min(climb.num_silent, kMostDoublings));
  HelloMessage hello;
  hello.job_id = options.job_id;
  hello.generation = options.generation;
  hello.world_size = options.world_size;
  hello.num_roots = options.num_roots;
  hello.rank = options.rank;
  hello.instance = options.instance;
  hello.pid = options.pid;
  hello.role = role;
  hello.assigned = climb.target == Target::kAssigned;
  hello.reattach = ready;
  hello.unreachable = climb.unreachable;
  hello.endpoints = role == TreeRole::kLocal ? Endpoints{options.local_endpoint} : options.endpoints;
  hello.subtree = subtree;
  hello.dead = dead;
  send(id, hello);
  unsent.clear();
  joined_due = Time::max();
}

std::string TreeNode::State::target_name() const {
  const std::string at = climb.endpoints.empty() ? "" : " at " + joined(climb.endpoints);
  if (climb.target == Target::kHostLeader) return "the leader of this host" + at;
  const std::string rank = "rank " + std::to_string(climb.rank);
  return (climb.target == Target::kRoot ? "the root, " + rank + "," : rank) + at;
}

void TreeNode::State::attempt_failed(std::string_view reason, Time now) {
  climb.connection = 0;
  // What one of its addresses has said may tell more than that another is closed to this rank.
  if (climb.candidate == 0)
    climb.trouble = target_name() + " cannot be reached: " + std::string(reason);
  else if (climb.trouble.find(reason) == std::string::npos)
    climb.trouble += "; " + std::string(reason);
  if (++climb.candidate < climb.endpoints.size()) return attempt(now);
  climb.candidate = 0;
  ++climb.num_failures;
  if (climb.target == Target::kAssigned) {
    climb.unreachable = climb.rank;
    if (role == TreeRole::kLocal) return aim(Target::kHostLeader, -1, {options.host_endpoint}, now);
    return pick_root(now);
  }
  wait_and_retry(now);
}

void TreeNode::State::wait_and_retry(Time now) {
  climb.step = Step::kWait;
  const milliseconds backoff = std::min(kMostBackoff, kFirstBackoff * (1 << std::min(climb.num_failures - 1, 10)));
  climb.due = now + jittered(backoff, options.rank, climb.num_failures);
}

void TreeNode::State::on_climb_due(Time now) {
  climb.due = Time::max();
  switch (climb.step) {
    case Step::kConnect:
    case Step::kGreet: {
      const bool connected = climb.step == Step::kGreet;
      close(climb.connection);
      if (connected) ++climb.num_silent;
      // A leader that is stopped holds its name: the ranks of its host go to a root without it.
      if (connected && climb.target == Target::kHostLeader) role = TreeRole::kLeader;
      return attempt_failed(connected ? "it does not answer" : "the connection is not made in time", now);
    }
    case Step::kLookUp: ++climb.num_failures; return pick_root(now);
    case Step::kWait:
      if (role == TreeRole::kLocal) return bind_host();
      return pick_root(now);
    case Step::kNone:
    case Step::kBindHost: return;
  }
}

Status TreeNode::State::on(Connection& from, WelcomeMessage& message, Time now) {
  from.link = Link::kParent;
  from.rank = message.rank;
  parent = from.id;
  climb = {};
  knows_missing = false;
  // The acknowledgement, and what has come since the hello. A parent before this one may have taken with it who left.
  unsent |= left_below;
  send(parent, JoinedMessage{unsent});
  if (!left_below.empty()) send(parent, DetachedMessage{{}, left_below});
  unsent.clear();
  RankSet untold = dead;
  untold -= message.dead;
  if (!untold.empty()) send(parent, DiedMessage{untold, "reported by " + own_name()});
  mark_dead(message.dead, "reported by rank " + std::to_string(message.rank), parent, now);
  if (postponed_due != Time::max()) fail_postponed();
  if (message.complete) complete(depth);
  return ok_status();
}

Status TreeNode::State::on(Connection& from, RedirectMessage& message, Time now) {
  close(from.id);
  climb.connection = 0;
  if (message.rank == options.rank) {
    attempt_failed("it names this rank as its own parent", now);
    return ok_status();
  }
  aim(Target::kAssigned, message.rank, std::move(message.endpoints), now);
  return ok_status();
}

Status TreeNode::State::on(Connection& from, RejectMessage& message, Time now) {
  close(from.id);
  if (message.final) {
    climb = {};
    fail(Status(message.code, message.text), message.ranks, 0);
  } else {
    climb.candidate = climb.endpoints.size();  // its other addresses are the same peer
    attempt_failed(message.text, now);
  }
  return ok_status();
}

}  // namespace qx::collectives
