// Who is there, who is missing, who has died or left.
#include <algorithm>
#include <utility>

#include "quincunx/collectives/bootstrap/tree_state.h"

namespace qx::collectives {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// News of arrivals are gathered: briefly at first, longer while they keep coming.
constexpr microseconds kFirstJoined{500};
constexpr microseconds kMostJoined{16'000};
constexpr milliseconds kQuiet{100};
// The first death is told at once; when a host falls, the others follow together.
constexpr milliseconds kDiedInterval{5};
constexpr milliseconds kProgressInterval{200};
// A scattered set of many thousand ranks is told less often.
constexpr int64_t kProgressBytesPerMillisecond = 8;
constexpr size_t kNumSuccessors = 2;
// An orphan that is alive has found another parent by then.
constexpr milliseconds kOrphanTime{1200};
constexpr milliseconds kTimeToBeHeard{1500};
constexpr milliseconds kTimeOfDeaths{20};
// At the end of a job all leave at once: an orphan of someone who has left is in no hurry.
constexpr milliseconds kOrphanDelay{200};

std::string seconds_text(std::chrono::milliseconds time) {
  const std::string text = std::to_string(time.count() / 1000.0);
  return text.substr(0, text.find('.') + 2) + " s";
}

}  // namespace

Status TreeNode::State::claim(Connection& child, const RankSet& ranks, Time now) {
  RankSet fresh = ranks;
  fresh -= child.claimed_before;
  // After a death orphans move, and the job cannot come up anyway.
  if (!ready && dead.empty() && fresh.overlaps(subtree)) {
    fresh &= subtree;
    fail_when_heard(invalid_argument("rank " + fresh.to_string() + " was started twice: it came below rank " +
                                     std::to_string(child.rank) + " and on another way"),
                    fresh, 0, now);
    return ok_status();
  }
  if (ready || !dead.empty()) {
    // Orphans have moved: the newest claim holds.
    for (const auto& other : connections) {
      if (other->id != child.id && other->link == Link::kChild) other->subtree -= ranks;
    }
    fresh = ranks;
    fresh -= subtree;
  }
  child.subtree |= ranks;
  child.claimed_before.clear();
  choose_successors();
  if (fresh.empty()) return ok_status();
  subtree |= fresh;
  left -= fresh;
  unsent |= fresh;
  come_back(fresh, now);
  schedule_joined(now);
  complete_if_all_came();
  return ok_status();
}

// Whoever has left was there: those who need it are told when they ask for it.
void TreeNode::State::complete_if_all_came() {
  if (root != 0 || ready || failed) return;
  RankSet came = subtree;
  came |= left;
  if (came.count() == options.world_size) complete(0);
}

void TreeNode::State::schedule_joined(Time now) {
  if (parent == 0 || joined_due != Time::max()) return;
  if (now - last_joined > kQuiet) joined_interval = microseconds(0);
  joined_due = std::max(now + kFirstJoined, last_joined + joined_interval);
  joined_interval = std::clamp(joined_interval * 2, kFirstJoined, kMostJoined);
}

void TreeNode::State::flush_joined(Time now) {
  joined_due = Time::max();
  if (parent == 0 || unsent.empty()) return;
  last_joined = now;
  send(parent, JoinedMessage{unsent});
  unsent.clear();
}

void TreeNode::State::complete(int own_depth) {
  depth = own_depth;
  statistics.depth = own_depth;
  if (ready || failed) return;
  ready = true;
  act(TreeAction::Kind::kReady);
  missing.clear();
  knows_missing = true;
  send_to_children(CompleteMessage{own_depth, token});
  choose_successors();
}

// The top, and leaders that are its children: they see its death, or its leaving, themselves.
void TreeNode::State::choose_successors() {
  if (!ready || !is_top()) return;
  SuccessorsMessage chosen{{{options.rank, options.endpoints}}, {}};
  std::vector<RedirectMessage>& order = chosen.successors;
  const auto add = [&](int rank, const Endpoints& endpoints) {
    const bool is_known = std::ranges::any_of(order, [&](const auto& one) { return one.rank == rank; });
    if (order.size() <= kNumSuccessors && !is_known) order.push_back({rank, endpoints});
  };
  const auto choose = [&](const Connection& child) {
    if (child.link == Link::kChild && !child.endpoints.empty()) add(child.rank, child.endpoints);
  };
  // Those that were chosen before keep their place.
  for (const RedirectMessage& before : succession.successors) {
    for (const auto& connection : connections) {
      if (connection->rank == before.rank) choose(*connection);
    }
  }
  for (const auto& connection : connections) choose(*connection);
  // Those that have not come to a new top yet.
  for (const RedirectMessage& before : succession.successors) {
    if (!dead.contains(before.rank) && !left.contains(before.rank)) add(before.rank, before.endpoints);
  }
  for (int i = 0; i < options.num_roots; ++i) {
    const int rank = root_rank(i, options.world_size, options.num_roots);
    if (left.contains(rank)) chosen.left_roots.insert(rank);
  }
  const auto is_same = [](const RedirectMessage& a, const RedirectMessage& b) { return a.rank == b.rank; };
  const bool is_news =
      !std::ranges::equal(order, succession.successors, is_same) || !(chosen.left_roots == succession.left_roots);
  if (!is_news) return;
  succession = std::move(chosen);
  send_to_children(succession);
}

Status TreeNode::State::on(Connection& from, SuccessorsMessage& message, Time) {
  for (const RedirectMessage& successor : message.successors) {
    Root& known = root_of(successor.rank);
    known.endpoints = successor.endpoints;
    known.asked = true;
  }
  succession = std::move(message);
  left |= succession.left_roots;
  left.erase(options.rank);
  flood(succession, from.id);
  return ok_status();
}

Status TreeNode::State::on(Connection& from, CompleteMessage& message, Time) {
  static_cast<void>(from);
  if (token.empty()) token = std::move(message.token);
  complete(message.depth + 1);
  return ok_status();
}

Status TreeNode::State::on(Connection& from, DetachedMessage& message, Time now) {
  // What another child has claimed in the meantime is not ours to take away.
  message.moved &= from.subtree;
  message.left &= from.subtree;
  from.subtree -= message.moved;
  from.subtree -= message.left;
  detach(message.moved, message.left, now);
  choose_successors();
  return ok_status();
}

void TreeNode::State::detach(const RankSet& moved, const RankSet& gone_ranks, Time now) {
  // Those above must have heard of a rank before they hear that it has left.
  if (unsent.overlaps(gone_ranks)) flush_joined(now);
  subtree -= moved;
  subtree -= gone_ranks;
  unsent -= moved;
  unsent -= gone_ranks;
  left |= gone_ranks;
  left_below |= gone_ranks;
  complete_if_all_came();
  if (parent != 0 && (!moved.empty() || !gone_ranks.empty())) send(parent, DetachedMessage{moved, gone_ranks});
  // Those below someone who said goodbye may be leaving too.
  if (gone_ranks.empty()) expect_back(moved, now);
}

// The top counts those whose parent has died: where a whole host has fallen, nobody else is left to see it.
void TreeNode::State::expect_back(const RankSet& ranks, Time now) {
  const bool is_successor =
      std::ranges::any_of(succession.successors, [&](const auto& successor) { return successor.rank == options.rank; });
  if (!is_top() || (root < 0 && !is_successor) || ranks.empty()) return;
  orphans.push_back({ranks, now + scaled(kOrphanTime)});
}

void TreeNode::State::come_back(const RankSet& ranks, Time now) {
  if (orphans.empty()) return;
  for (Orphans& batch : orphans) batch.ranks -= ranks;
  std::erase_if(orphans, [](const Orphans& batch) { return batch.ranks.empty(); });
  if (orphans.empty() && postponed_due != Time::max()) postponed_due = now;
}

void TreeNode::State::give_up_orphans(Time now) {
  RankSet lost;
  std::erase_if(orphans, [&](const Orphans& batch) {
    if (batch.due <= now) lost |= batch.ranks;
    return batch.due <= now;
  });
  lost -= subtree;
  lost -= left;
  if (!lost.empty()) mark_dead(lost, "it has not come back since its parent in the tree died", 0, now);
}

void TreeNode::State::lose_neighbour(TreeConnection id, bool said_goodbye, std::string_view reason, Time now) {
  Connection lost = std::move(*find(id));
  forget(id);
  drop_from_questions(id);
  const RankSet rank{lost.rank};
  if (lost.link == Link::kParent) {
    if (said_goodbye) left |= rank;
  } else {
    --statistics.num_children;
    if (leader_table) leader_table->remove(lost.rank);
    if (local_table) local_table->remove(lost.rank);
    RankSet below = lost.subtree;
    below.erase(lost.rank);
    detach(below, said_goodbye ? rank : RankSet(), now);
    choose_successors();
  }
  // Before all are there too: what this node knows of the death must be heard above.
  if (lost.link == Link::kParent && !failed) begin_climb(now, said_goodbye ? kOrphanDelay : milliseconds(0));
  const std::string name = "rank " + std::to_string(lost.rank);
  if (!said_goodbye) {
    mark_dead(rank, "its connection to " + own_name() + " has ended (" + std::string(reason) + ")", id, now);
  } else if (!ready && lost.rank == root_rank(0, options.world_size, options.num_roots)) {
    // The others gather at this one.
    fail(unavailable(name + " left before all ranks were there"), rank, 0);
  }
}

Status TreeNode::State::on(Connection& from, GoodbyeMessage& message, Time now) {
  const TreeConnection id = from.id;
  left |= message.left;
  left -= subtree;
  act(TreeAction::Kind::kClose).connection = id;
  lose_neighbour(id, true, "it said goodbye", now);
  return ok_status();
}

void TreeNode::State::mark_dead(const RankSet& ranks, const std::string& text, TreeConnection source, Time now) {
  RankSet news = ranks;
  news -= dead;
  if (news.empty() || has_left) return;
  if (news.contains(options.rank)) {
    news.erase(options.rank);
    fail(unavailable("the other ranks have given up " + own_name() + " as dead: " + text), RankSet{options.rank},
         source);
    if (news.empty()) return;
  }
  dead |= news;
  subtree -= news;
  unsent -= news;
  for (const auto& connection : connections) connection->subtree -= news;
  come_back(news, now);
  for (const RankSet::Range& range : news.ranges()) {
    for (int rank = range.begin; rank < range.end; ++rank) {
      if (leader_table) leader_table->remove(rank);
      if (local_table) local_table->remove(rank);
      records.erase(rank);
      TreeAction& action = act(TreeAction::Kind::kPeerDied);
      action.rank = rank;
      action.status = unavailable("rank " + std::to_string(rank) + " has died: " + text);
      finish_resolving(rank, action.status, {});
    }
  }
  if (unsent_dead.empty()) {
    unsent_dead_text = text;
    unsent_dead_source = source;
  }
  // Whoever has told of some has to hear of the others.
  if (unsent_dead_source != source) unsent_dead_source = 0;
  unsent_dead |= news;
  if (now - last_died >= kDiedInterval) {
    flush_died(now);
  } else {
    died_due = std::min(died_due, last_died + kDiedInterval);
  }
  if (!ready) fail_for_deaths(text, now);
}

void TreeNode::State::flush_died(Time now) {
  died_due = Time::max();
  if (unsent_dead.empty()) return;
  last_died = now;
  flood(DiedMessage{unsent_dead, unsent_dead_text.substr(0, kMaxTextBytes)}, unsent_dead_source);
  unsent_dead.clear();
}

Status TreeNode::State::on(Connection& from, DiedMessage& message, Time now) {
  mark_dead(message.ranks, message.text, from.id, now);
  return ok_status();
}

void TreeNode::State::fail_when_heard(const Status& status, const RankSet& ranks, TreeConnection source, Time now) {
  if (failed || postponed_due != Time::max()) return;
  if (climb.step == Step::kNone) return fail(status, ranks, source);
  postponed = status;
  postponed_ranks = ranks;
  postponed_due = now + scaled(kTimeToBeHeard);
}

// Deaths that come together are named together: the top knows when nobody is missed any more, and tells the others.
void TreeNode::State::fail_for_deaths(const std::string& text, Time now) {
  if (failed || postponed_due != Time::max()) return;
  postponed = unavailable(text);
  postponed_ranks.clear();
  postponed_due = now + scaled(is_top() && orphans.empty() ? kTimeOfDeaths : kTimeToBeHeard);
}

void TreeNode::State::fail_postponed() {
  postponed_due = Time::max();
  if (!postponed_ranks.empty()) return fail(postponed, postponed_ranks, 0);
  const bool is_one = dead.count() == 1;
  fail(unavailable((is_one ? "rank " : "ranks ") + dead.to_string() + (is_one ? " has" : " have") +
                   " died before all ranks were there: " + postponed.message()),
       dead, 0);
}

// A share of the time that there is, where that is short.
TreeNode::Clock::duration TreeNode::State::scaled(milliseconds usual) const {
  constexpr int kShares = 8;
  return std::min<Clock::duration>(usual, options.timeout / kShares);
}

void TreeNode::State::fail(const Status& status, const RankSet& ranks, TreeConnection source) {
  if (ready || failed || has_left) return;
  failed = true;
  failure = status;
  failure_ranks = ranks;
  TreeAction& action = act(TreeAction::Kind::kFailed);
  action.status = status;
  action.ranks = ranks;
  flood(FailedMessage{status.code(), ranks, status.message().substr(0, kMaxTextBytes)}, source);
}

Status TreeNode::State::on(Connection& from, FailedMessage& message, Time) {
  fail(Status(message.code, message.text), message.ranks, from.id);
  return ok_status();
}

TreeProgress TreeNode::State::progress() const {
  TreeProgress progress;
  progress.phase = TreeProgress::Phase::kAttached;
  if (climb.step != Step::kNone) progress.phase = TreeProgress::Phase::kConnecting;
  if (climb.step == Step::kBindHost) progress.phase = TreeProgress::Phase::kElecting;
  if (failed) progress.phase = TreeProgress::Phase::kFailed;
  if (ready) progress.phase = TreeProgress::Phase::kReady;
  if (ready) return progress;
  if (climb.step != Step::kNone) {
    progress.text = climb.trouble.empty() ? "connecting to " + target_name() : climb.trouble;
    // Without a root the others cannot be seen; that one is missing for certain.
    // A root collects the ranks itself as long as the ones before it are not there.
    if (climb.target == Target::kRoot && climb.rank >= 0 && root < 0) {
      progress.missing.insert(climb.rank);
      progress.text += "; without it no others can be seen";
    }
  } else if (root != 0 && knows_missing) {
    progress.text = missing_text;
    progress.missing = missing;
  }
  if (progress.missing.empty()) {
    progress.missing = RankSet::range(0, options.world_size);
    progress.missing -= subtree;
    progress.missing -= left;
  }
  return progress;
}

// The node's tree has no parent: it is the top, or it is on its way to a root.
void TreeNode::State::push_progress(Time now) {
  TreeProgress view = progress();
  int64_t interval_ms = kProgressInterval.count();
  if (!knows_missing || view.missing != missing || view.text != missing_text) {
    knows_missing = true;
    missing = std::move(view.missing);
    missing_text = view.text.substr(0, kMaxTextBytes);
    const ProgressMessage message{missing, missing_text};
    interval_ms += static_cast<int64_t>(encode_tree_message(message).size()) / kProgressBytesPerMillisecond;
    send_to_children(message);
  }
  progress_due = now + scaled(milliseconds(interval_ms));
}

Status TreeNode::State::on(Connection&, ProgressMessage& message, Time) {
  knows_missing = true;
  missing = std::move(message.missing);
  missing_text = std::move(message.text);
  send_to_children(ProgressMessage{missing, missing_text});
  return ok_status();
}

Status TreeNode::State::expired() const {
  const TreeProgress view = progress();
  const std::string after = "after " + seconds_text(options.timeout) + " ";
  const bool is_one = view.missing.count() == 1;
  return deadline_exceeded(after + (is_one ? "rank " : "ranks ") + view.missing.to_string() + " of " +
                           std::to_string(options.world_size) + (is_one ? " is missing" : " are missing") +
                           (view.text.empty() ? "" : ": " + view.text));
}

}  // namespace qx::collectives
