// Whoever connects: is it one of us, and who is to be its parent?
#include <algorithm>
#include <utility>

#include "quincunx/collectives/bootstrap/tree_state.h"

namespace qx::collectives {
std::optional<TreeNode::State::Objection> TreeNode::State::object(const HelloMessage& hello) const {
  const std::string name = "rank " + std::to_string(hello.rank);
  if (hello.job_id != options.job_id) {
    return Objection{failed_precondition(name + " belongs to another job than " + own_name() + ", which it reached"),
                     {}};
  }
  if (hello.generation != options.generation) {
    return Objection{
        failed_precondition(name + " is of generation " + std::to_string(hello.generation) + ", but " + own_name() +
                            ", which it reached, of generation " + std::to_string(options.generation)),
        {}};
  }
  RankSet both{options.rank};  // which of them is wrong cannot be told here
  if (hello.rank < options.world_size) both.insert(hello.rank);
  const auto differs = [&](const char* what, int theirs, int ours) {
    return Objection{invalid_argument(name + " was started with " + what + " " + std::to_string(theirs) + ", " +
                                      own_name() + " with " + std::to_string(ours)),
                     both, !ready};
  };
  if (hello.world_size != options.world_size) return differs("world size", hello.world_size, options.world_size);
  if (hello.num_roots != options.num_roots) return differs("a number of roots of", hello.num_roots, options.num_roots);
  return std::nullopt;
}

std::optional<TreeNode::State::Objection> TreeNode::State::find_conflict(const HelloMessage& hello) const {
  if (failed) return Objection{failure, failure_ranks};
  if (dead.contains(hello.rank)) {
    return Objection{
        unavailable("rank " + std::to_string(hello.rank) + " has been given up as dead by the other ranks"),
        RankSet{hello.rank}};
  }
  return find_duplicate(hello);
}

bool TreeNode::State::is_same_process(const Connection& connection, const HelloMessage& hello) {
  return connection.rank == hello.rank && connection.instance == hello.instance;
}

std::optional<TreeNode::State::Objection> TreeNode::State::find_duplicate(const HelloMessage& hello) const {
  int64_t other = -1;
  bool found = false;
  const auto compare = [&](uint64_t instance, int64_t pid) {
    if (instance == 0 || instance == hello.instance) return;
    found = true;
    other = std::max(other, pid);
  };
  if (hello.rank == options.rank) compare(options.instance, options.pid);
  for (const auto& connection : connections) {
    if (connection->rank == hello.rank && connection->link != Link::kStranger)
      compare(connection->instance, connection->pid);
  }
  for (const auto* table : {local_table.get(), leader_table.get()}) {
    if (table != nullptr) compare(table->instance_of(hello.rank), -1);
  }
  RankSet twice{hello.rank};
  RankSet known = subtree;
  for (const auto& connection : connections) {
    if (is_same_process(*connection, hello)) known -= connection->subtree;
  }
  if (!ready && dead.empty() && hello.subtree.overlaps(known)) {
    twice = hello.subtree;
    twice &= known;
    found = true;
  }
  if (ready && !hello.reattach) found = true;
  if (!found) return std::nullopt;
  std::string text = "rank " + twice.to_string() + " was started twice: process " + std::to_string(hello.pid);
  if (other >= 0) text += " and process " + std::to_string(other);
  return Objection{invalid_argument(std::move(text)), twice, !ready};
}

void TreeNode::State::reject(TreeConnection id, const Objection& objection, bool final) {
  RejectMessage message;
  message.final = final;
  message.code = objection.status.code();
  message.ranks = objection.ranks;
  message.text = objection.status.message().substr(0, kMaxTextBytes);
  send(id, message);
  close(id);
}

ParentTable& TreeNode::State::table_for(TreeRole child_role) {
  auto& table = child_role == TreeRole::kLocal ? local_table : leader_table;
  if (table == nullptr) {
    // Roots that connect take their share of the limit.
    const int child_roots = static_cast<int>(std::min<int64_t>(
        limits.root_child_roots,
        std::max<int64_t>(0, int64_t{options.num_roots} - 1 - limits.root_child_roots * std::max(root, 0))));
    const int own_children = child_role == TreeRole::kLocal ? limits.children : limits.root_children - child_roots;
    table = std::make_unique<ParentTable>(options.rank, own_children, limits.children);
  }
  return *table;
}

void TreeNode::State::welcome(Connection& child, HelloMessage& hello) {
  child.link = Link::kWelcomed;
  child.rank = hello.rank;
  child.pid = hello.pid;
  child.instance = hello.instance;
  if (hello.role == TreeRole::kLeader) {
    child.endpoints = std::move(hello.endpoints);
  } else if (hello.role == TreeRole::kLocal) {
    child.local_endpoints = std::move(hello.endpoints);
  }
  child.claimed_before = std::move(child.subtree);
  child.subtree = std::move(hello.subtree);
  send(child.id, WelcomeMessage{options.rank, ready, dead});
  if (ready && !succession.successors.empty()) send(child.id, succession);
  if (ready) send(child.id, CompleteMessage{depth, token});
  if (!ready && knows_missing) send(child.id, ProgressMessage{missing, missing_text});
}

Status TreeNode::State::on(Connection& from, HelloMessage& message, Time now) {
  const TreeConnection id = from.id;
  auto objection = object(message);
  if (!objection) {
    // Who has lost a parent knows of its death before those above may do.
    mark_dead(message.dead, "reported by rank " + std::to_string(message.rank), 0, now);
    objection = find_conflict(message);
  }
  if (objection) {
    ++statistics.num_dropped;
    reject(id, *objection, true);
    if (objection->ends_job) fail_when_heard(objection->status, objection->ranks, 0, now);
    return ok_status();
  }
  const Objection later{unavailable(own_name() + " cannot take it at present"), {}};
  if (message.subtree.contains(options.rank) ||
      (message.role == TreeRole::kLocal && !message.assigned && !has_host_name)) {
    reject(id, later, false);
    return ok_status();
  }
  // A connection that its peer has given up. What was below it will be claimed again.
  for (const auto& connection : connections) {
    if (connection->id == id || !is_same_process(*connection, message)) continue;
    from.subtree = connection->subtree;
    close(connection->id);
    break;
  }
  if (!message.assigned && message.role != TreeRole::kRoot) {
    const ParentTable::Place place =
        table_for(message.role).place(message.rank, message.instance, message.endpoints, message.unreachable);
    if (place.parent >= 0 && place.parent != options.rank) {
      send(id, RedirectMessage{place.parent, place.endpoints});
      close(id);
      return ok_status();
    }
    if (place.parent < 0) {
      reject(id, later, false);
      return ok_status();
    }
  }
  welcome(*find(id), message);
  return ok_status();
}

Status TreeNode::State::on(Connection& from, JoinedMessage& message, Time now) {
  RankSet ranks = message.ranks;
  if (from.link == Link::kWelcomed) {
    from.link = Link::kChild;
    ++statistics.num_children;
    ranks |= from.subtree;
    from.subtree.clear();
  }
  return claim(from, ranks, now);
}

}  // namespace qx::collectives
