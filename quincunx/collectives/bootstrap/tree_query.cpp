// Records on demand, and questions to all.
#include <algorithm>
#include <utility>

#include "quincunx/collectives/bootstrap/tree_state.h"

namespace qx::collectives {
namespace {

// While the tree heals, a request can be lost.
constexpr std::chrono::milliseconds kRetry{500};
constexpr size_t kMaxQuestions = 1024;
// Of the patience that a node has, what it gives its neighbours: answers must have time to come back.
constexpr uint32_t kPatiencePercent = 85;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), std::min(text.size(), kMaxTreeRecordBytes)));
}

void add_answer(std::vector<AnswersMessage::Group>& groups, std::span<const std::byte> payload, const RankSet& ranks) {
  for (AnswersMessage::Group& group : groups) {
    if (!std::ranges::equal(group.payload, payload)) continue;
    group.ranks |= ranks;
    return;
  }
  // Ranks beyond so many different answers count as silent, and so do those beyond what a message holds.
  if (groups.size() < kMaxAnswerGroups) groups.push_back({{payload.begin(), payload.end()}, ranks});
}

// At most so many.
size_t answer_bytes(const AnswersMessage& message) {
  constexpr size_t kNumberBytes = 3;  // of a rank
  size_t size = 64;
  for (const AnswersMessage::Group& group : message.groups) {
    size += 16 + group.payload.size() + group.ranks.ranges().size() * 2 * kNumberBytes;
  }
  return size;
}

}  // namespace

Status TreeNode::State::gone(int rank) const {
  const std::string name = "rank " + std::to_string(rank);
  if (dead.contains(rank)) return unavailable(name + " has died");
  if (left.contains(rank)) return not_found(name + " has left");
  return ok_status();
}

void TreeNode::State::finish_resolving(int rank, const Status& status, std::span<const std::byte> record) {
  const auto found =
      std::find_if(resolving.begin(), resolving.end(), [&](const Resolving& waiting) { return waiting.rank == rank; });
  if (found == resolving.end()) return;
  resolving.erase(found);
  TreeAction& action = act(TreeAction::Kind::kResolved);
  action.rank = rank;
  action.status = status;
  action.bytes.assign(record.begin(), record.end());
}

void TreeNode::State::resolve(int rank, Time now) {
  const bool is_asked =
      std::any_of(resolving.begin(), resolving.end(), [&](const Resolving& waiting) { return waiting.rank == rank; });
  if (is_asked || has_left) return;
  resolving.push_back({rank, now + kRetry});
  if (rank < 0 || rank >= options.world_size) {
    return finish_resolving(rank,
                            invalid_argument("rank is " + std::to_string(rank) + ", expected 0 to " +
                                             std::to_string(options.world_size - 1)),
                            {});
  }
  if (rank == options.rank) return finish_resolving(rank, {}, options.record);
  if (const auto known = records.find(rank); known != records.end()) return finish_resolving(rank, {}, known->second);
  if (const Status status = gone(rank); !status.ok()) return finish_resolving(rank, status, {});
  route(rank, ResolveMessage{options.rank, rank, 0}, 0);
}

void TreeNode::State::retry_resolving(Time now) {
  for (Resolving& waiting : resolving) {
    if (waiting.retry > now) continue;
    waiting.retry = now + kRetry;
    route(waiting.rank, ResolveMessage{options.rank, waiting.rank, 0}, 0);
  }
}

bool TreeNode::State::route(int rank, const TreeMessage& message, TreeConnection from) {
  for (const auto& connection : connections) {
    if (connection->link != Link::kChild || connection->id == from || !connection->subtree.contains(rank)) continue;
    send(connection->id, message);
    return true;
  }
  if (parent == 0 || parent == from) return false;
  send(parent, message);
  return true;
}

Status TreeNode::State::on(Connection& from, ResolveMessage& message, Time) {
  if (++message.hops > kMaxTreeHops) return ok_status();
  ResolvedMessage reply{message.asker, message.target, 0, StatusCode::kOk, {}};
  const Status status = gone(message.target);
  if (message.target == options.rank) {
    reply.record = options.record;
  } else if (!status.ok()) {
    reply.code = status.code();
    const auto text = bytes_of(status.message());
    reply.record.assign(text.begin(), text.end());
  } else {
    // Where there is no way at present, the asker tries again.
    route(message.target, message, from.id);
    return ok_status();
  }
  if (find(from.id) != nullptr) send(from.id, reply);
  return ok_status();
}

Status TreeNode::State::on(Connection& from, ResolvedMessage& message, Time) {
  if (message.asker != options.rank) {
    if (++message.hops <= kMaxTreeHops) route(message.asker, message, from.id);
    return ok_status();
  }
  if (message.code != StatusCode::kOk) {
    const std::string text(reinterpret_cast<const char*>(message.record.data()), message.record.size());
    finish_resolving(message.target, Status(message.code, text), {});
    return ok_status();
  }
  records[message.target] = message.record;
  finish_resolving(message.target, {}, message.record);
  return ok_status();
}

uint32_t TreeNode::State::query(std::span<const std::byte> payload, std::chrono::milliseconds patience, Time now) {
  QueryMessage message;
  message.asker = options.rank;
  message.query = next_query++;
  message.patience_ms = static_cast<uint32_t>(std::clamp<int64_t>(patience.count(), 1, 3'600'000));
  message.payload.assign(payload.begin(),
                         payload.begin() + static_cast<std::ptrdiff_t>(std::min(payload.size(), kMaxTreePayloadBytes)));
  ask({options.rank, message.query, 0, true, {}, {}, now + std::chrono::milliseconds(message.patience_ms)}, message,
      now);
  return message.query;
}

Status TreeNode::State::on(Connection& from, QueryMessage& message, Time now) {
  if (questions.size() >= kMaxQuestions) return ok_status();
  for (const Question& question : questions) {  // a second copy, by a way that has just changed
    if (question.asker == message.asker && question.query == message.query) return ok_status();
  }
  ask({message.asker, message.query, from.id, true, {}, {}, now + std::chrono::milliseconds(message.patience_ms)},
      message, now);
  return ok_status();
}

void TreeNode::State::ask(Question question, const QueryMessage& message, Time) {
  QueryMessage forwarded = message;
  forwarded.patience_ms = message.patience_ms * kPatiencePercent / 100;
  for (const auto& connection : connections) {
    if (connection->id != question.from && (connection->link == Link::kChild || connection->link == Link::kParent)) {
      question.outstanding.push_back(connection->id);
    }
  }
  const std::vector<TreeConnection> targets = question.outstanding;
  questions.push_back(std::move(question));
  for (const TreeConnection target : targets) send(target, forwarded);
  TreeAction& action = act(TreeAction::Kind::kQuery);
  action.rank = message.asker;
  action.query = message.query;
  action.bytes = message.payload;
}

void TreeNode::State::answer(int asker, uint32_t query_id, std::span<const std::byte> payload) {
  for (Question& question : questions) {
    if (question.asker != asker || question.query != query_id || !question.own_answer_due) continue;
    question.own_answer_due = false;
    add_answer(question.groups, payload.first(std::min(payload.size(), kMaxTreePayloadBytes)), RankSet{options.rank});
  }
  finish_questions(Time::min());
}

Status TreeNode::State::on(Connection& from, AnswersMessage& message, Time) {
  for (Question& question : questions) {
    if (question.asker != message.asker || question.query != message.query) continue;
    if (std::erase(question.outstanding, from.id) == 0) continue;
    for (const AnswersMessage::Group& group : message.groups) add_answer(question.groups, group.payload, group.ranks);
  }
  finish_questions(Time::min());
  return ok_status();
}

void TreeNode::State::drop_from_questions(TreeConnection id) {
  for (Question& question : questions) std::erase(question.outstanding, id);
  finish_questions(Time::min());
}

void TreeNode::State::finish_questions(Time now) {
  for (size_t i = 0; i < questions.size();) {
    const bool is_complete = !questions[i].own_answer_due && questions[i].outstanding.empty();
    if (!is_complete && questions[i].due > now) {
      ++i;
      continue;
    }
    Question question = std::move(questions[i]);
    questions.erase(questions.begin() + static_cast<std::ptrdiff_t>(i));
    if (question.from != 0) {
      AnswersMessage reply{question.asker, question.query, std::move(question.groups)};
      while (answer_bytes(reply) > kMaxTreeBodyBytes) reply.groups.pop_back();
      if (find(question.from) != nullptr) send(question.from, reply);
      continue;
    }
    TreeAction& action = act(TreeAction::Kind::kAnswers);
    action.query = question.query;
    action.ranks = RankSet::range(0, options.world_size);
    for (const AnswersMessage::Group& group : question.groups) {
      action.ranks -= group.ranks;
      action.answers.push_back({group.payload, group.ranks});
    }
  }
}

}  // namespace qx::collectives
