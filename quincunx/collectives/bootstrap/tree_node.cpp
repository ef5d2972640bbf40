#include "quincunx/collectives/bootstrap/tree_node.h"

#include <algorithm>
#include <utility>

#include "quincunx/collectives/bootstrap/tree_state.h"

namespace qx::collectives {
namespace {

// A stranger that has not said hello by then is dropped.
constexpr std::chrono::seconds kHandshakeTime{10};
constexpr std::chrono::milliseconds kFirstProgress{100};

Status check_endpoints(const char* name, const Endpoints& endpoints, bool may_be_abstract) {
  if (endpoints.size() > kMaxEndpoints) {
    return invalid_argument(std::string(name) + " has " + std::to_string(endpoints.size()) +
                            " entries, expected at most " + std::to_string(kMaxEndpoints));
  }
  for (const std::string& endpoint : endpoints) {
    const Status status = check_tree_endpoint(endpoint);
    if (!status.ok()) return invalid_argument(std::string(name) + ": " + status.message());
    if (!may_be_abstract && endpoint.starts_with('@')) {
      return invalid_argument(std::string(name) + ": " + endpoint + " is on this host only, expected an address");
    }
  }
  return ok_status();
}

Status check_options(const TreeOptions& options) {
  const auto out_of_range = [](const char* name, int64_t value, int64_t low, int64_t high) {
    return invalid_argument(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(low) +
                            " to " + std::to_string(high));
  };
  const int world = options.world_size;
  if (world < 1 || world > kMaxTreeWorldSize) return out_of_range("world_size", world, 1, kMaxTreeWorldSize);
  if (options.rank < 0 || options.rank >= world) return out_of_range("rank", options.rank, 0, world - 1);
  if (options.num_roots < 1 || options.num_roots > world) return out_of_range("num_roots", options.num_roots, 1, world);
  if (options.pid < 0 || options.pid > int64_t{1} << 32) return out_of_range("pid", options.pid, 0, int64_t{1} << 32);
  if (options.record.size() > kMaxTreeRecordBytes) {
    return out_of_range("the size of record", static_cast<int64_t>(options.record.size()), 0, kMaxTreeRecordBytes);
  }
  QX_RETURN_IF_ERROR(check_endpoints("host_endpoint", {options.host_endpoint}, true));
  QX_RETURN_IF_ERROR(check_endpoints("local_endpoint", {options.local_endpoint}, true));
  return check_endpoints("endpoints", options.endpoints, false);
}

}  // namespace

int default_num_roots(int num_leaders) { return std::max(1, (num_leaders + kLeadersPerRoot - 1) / kLeadersPerRoot); }

int root_rank(int root, int world_size, int num_roots) {
  return static_cast<int>((int64_t{root} * world_size + num_roots - 1) / num_roots);
}

TreeNode::State::State(TreeOptions given) : options(std::move(given)), subtree({options.rank}) {
  const auto home = static_cast<int>(int64_t{options.rank} * options.num_roots / options.world_size);
  if (root_rank(home, options.world_size, options.num_roots) == options.rank) root = home;
  if (root >= 0) role = TreeRole::kRoot;
}

void TreeNode::State::start(Time now) {
  started = now;
  deadline = now + options.timeout;
  progress_due = now + scaled(kFirstProgress);
  last_joined = last_died = now - std::chrono::hours(1);
  if (root == 0) {
    if (options.world_size == 1) complete(0);
    return;
  }
  begin_climb(now, std::chrono::milliseconds(0));
}

std::string TreeNode::State::own_name() const { return "rank " + std::to_string(options.rank); }

TreeAction& TreeNode::State::act(TreeAction::Kind kind) {
  TreeAction& action = actions.emplace_back();
  action.kind = kind;
  return action;
}

TreeNode::State::Connection& TreeNode::State::add_connection(Link link) {
  auto& connection = *connections.emplace_back(std::make_unique<Connection>());
  connection.id = next_id++;
  connection.link = link;
  statistics.most_connections = std::max(statistics.most_connections, static_cast<int>(connections.size()));
  return connection;
}

TreeNode::State::Connection* TreeNode::State::find(TreeConnection id) {
  // Ids only grow, and so they are sorted.
  const auto found =
      std::lower_bound(connections.begin(), connections.end(), id,
                       [](const auto& connection, TreeConnection wanted) { return connection->id < wanted; });
  return found != connections.end() && (*found)->id == id ? found->get() : nullptr;
}

void TreeNode::State::forget(TreeConnection id) {
  std::erase_if(connections, [&](const auto& connection) { return connection->id == id; });
  if (parent == id) parent = 0;
}

void TreeNode::State::close(TreeConnection id) {
  act(TreeAction::Kind::kClose).connection = id;
  forget(id);
}

void TreeNode::State::send(TreeConnection id, const TreeMessage& message) {
  TreeAction& action = act(TreeAction::Kind::kSend);
  action.connection = id;
  action.bytes = encode_tree_message(message);
  ++statistics.messages_sent;
  statistics.bytes_sent += action.bytes.size();
}

bool TreeNode::State::is_neighbour(const Connection& connection) {
  return connection.link == Link::kChild || connection.link == Link::kParent || connection.link == Link::kWelcomed;
}

void TreeNode::State::send_to_children(const TreeMessage& message) { flood(message, parent); }

void TreeNode::State::flood(const TreeMessage& message, TreeConnection except) {
  std::vector<std::byte> bytes;
  for (const auto& connection : connections) {
    if (connection->id == except || !is_neighbour(*connection)) continue;
    if (bytes.empty()) bytes = encode_tree_message(message);
    TreeAction& action = act(TreeAction::Kind::kSend);
    action.connection = connection->id;
    action.bytes = bytes;
    ++statistics.messages_sent;
    statistics.bytes_sent += bytes.size();
  }
}

TreeNode::Time TreeNode::State::next_timer() const {
  if (has_left) return Time::max();
  Time next = std::min({climb.due, joined_due, died_due, postponed_due});
  if (!ready && !failed) next = std::min(next, deadline);
  if (!ready && !failed && parent == 0) next = std::min(next, progress_due);
  if (!handshakes.empty()) next = std::min(next, handshakes.front().first);
  for (const Orphans& batch : orphans) next = std::min(next, batch.due);
  for (const Resolving& waiting : resolving) next = std::min(next, waiting.retry);
  for (const Question& question : questions) next = std::min(next, question.due);
  return next;
}

void TreeNode::State::drop_strangers_until(Time deadline) {
  const auto end = std::find_if(handshakes.begin(), handshakes.end(),
                                [deadline](const auto& handshake) { return handshake.first > deadline; });
  const std::vector<std::pair<Time, TreeConnection>> expired(handshakes.begin(), end);
  handshakes.erase(handshakes.begin(), end);
  for (const auto& [time, id] : expired) {
    const Connection* stranger = find(id);
    if (stranger == nullptr || stranger->link != Link::kStranger) continue;
    ++statistics.num_dropped;
    close(id);
  }
}

void TreeNode::State::on_timer(Time now) {
  if (has_left) return;
  drop_strangers_until(now);
  if (climb.due <= now) on_climb_due(now);
  if (joined_due <= now) flush_joined(now);
  if (died_due <= now) flush_died(now);
  if (!ready && !failed && parent == 0 && progress_due <= now) push_progress(now);
  give_up_orphans(now);
  if (postponed_due <= now) fail_postponed();
  if (!ready && !failed && deadline <= now) fail(expired(), progress().missing, 0);
  retry_resolving(now);
  finish_questions(now);
}

TreeConnection TreeNode::State::on_accepted(Time now) {
  Connection& connection = add_connection(Link::kStranger);
  ++statistics.num_accepts;
  handshakes.emplace_back(now + kHandshakeTime, connection.id);
  const size_t most_strangers = static_cast<size_t>(kLeadersPerRoot) + static_cast<size_t>(options.world_size);
  if (handshakes.size() > most_strangers) {
    const Connection* oldest = find(handshakes.front().second);
    handshakes.erase(handshakes.begin());
    if (oldest != nullptr && oldest->link == Link::kStranger) close(oldest->id);
  }
  return connection.id;
}

Status TreeNode::State::handle(TreeConnection id, TreeMessage& message, Time now) {
  Connection& from = *find(id);
  const auto is_one_of = [&](std::initializer_list<size_t> kinds) {
    return std::find(kinds.begin(), kinds.end(), message.index()) != kinds.end();
  };
  constexpr size_t kHello = 0, kWelcome = 1, kReject = 3, kJoined = 4, kDetached = 5, kProgress = 6, kComplete = 7,
                   kSuccessors = 13;
  bool expected = !is_one_of({kHello, kWelcome, 2, kReject});
  if (from.link == Link::kStranger) expected = is_one_of({kHello});
  if (from.link == Link::kGreeting || from.link == Link::kAttempt) expected = is_one_of({kWelcome, 2, kReject});
  if (from.link == Link::kWelcomed || from.link == Link::kChild) {
    expected = expected && !is_one_of({kProgress, kComplete, kSuccessors});
  }
  if (from.link == Link::kWelcomed) expected = is_one_of({kJoined});
  if (from.link == Link::kParent) expected = expected && !is_one_of({kJoined, kDetached});
  if (!expected) {
    return data_loss("it sent a message of kind " + std::to_string(message.index()) + " where none was expected");
  }
  return std::visit([&](auto& body) { return on(from, body, now); }, message);
}

void TreeNode::State::on_bytes(TreeConnection id, std::span<const std::byte> bytes, Time now) {
  statistics.bytes_received += bytes.size();
  std::vector<std::byte> joined;  // keeps the bytes while messages are handled
  if (Connection* from = find(id); from != nullptr && !from->partial.empty()) {
    joined = std::move(from->partial);
    from->partial.clear();
    joined.insert(joined.end(), bytes.begin(), bytes.end());
    bytes = joined;
  }
  while (Connection* from = find(id)) {
    Status status;
    size_t size = kTreeHeaderBytes;
    if (bytes.size() >= kTreeHeaderBytes) {
      const auto body_bytes = tree_body_bytes(bytes.first<kTreeHeaderBytes>());
      status = body_bytes.status();
      if (body_bytes.ok()) size += *body_bytes;
      // A hello holds two sets of ranks at most.
      const size_t most = kMaxTextBytes * 4 + static_cast<size_t>(options.world_size);
      if (from->link == Link::kStranger && size > most) status = data_loss("it sent a hello that is too long");
    }
    if (status.ok() && bytes.size() < size) {
      from->partial.assign(bytes.begin(), bytes.end());
      return;
    }
    if (status.ok()) {
      ++statistics.messages_received;
      auto message = decode_tree_message(bytes.first(size), options.world_size);
      status = message.ok() ? handle(id, *message, now) : message.status();
      bytes = bytes.subspan(size);
    }
    if (status.ok()) continue;
    ++statistics.num_dropped;
    if (find(id) == nullptr) return;
    act(TreeAction::Kind::kClose).connection = id;
    return on_closed(id, status.message(), now);
  }
}

void TreeNode::State::on_closed(TreeConnection id, std::string_view reason, Time now) {
  const Connection* connection = find(id);
  if (connection == nullptr) return;
  switch (connection->link) {
    case Link::kAttempt:
    case Link::kGreeting: forget(id); return attempt_failed(reason, now);
    case Link::kStranger: return forget(id);
    case Link::kWelcomed:
      // It never knew that it was a child: it will ask again, or will be missed.
      if (leader_table) leader_table->remove(connection->rank);
      if (local_table) local_table->remove(connection->rank);
      return forget(id);
    case Link::kChild:
    case Link::kParent: return lose_neighbour(id, false, reason, now);
  }
}

void TreeNode::State::leave(Time now) {
  if (has_left) return;
  flush_died(now);
  flood(GoodbyeMessage{is_top() ? left : RankSet()}, 0);
  while (!connections.empty()) close(connections.back()->id);
  climb = {};
  has_left = true;
}

Result<std::unique_ptr<TreeNode>> TreeNode::create(TreeOptions options) {
  QX_RETURN_IF_ERROR(check_options(options));
  return std::unique_ptr<TreeNode>(new TreeNode(std::make_unique<State>(std::move(options))));
}

TreeNode::TreeNode(std::unique_ptr<State> state) : state_(std::move(state)) {}
TreeNode::~TreeNode() = default;

std::optional<TreeAction> TreeNode::take_action() {
  if (state_->num_taken == state_->actions.size()) {
    state_->actions.clear();
    state_->num_taken = 0;
    return std::nullopt;
  }
  return std::move(state_->actions[state_->num_taken++]);
}

void TreeNode::start(Time now) { state_->start(now); }
TreeNode::Time TreeNode::next_timer() const { return state_->next_timer(); }
void TreeNode::on_timer(Time now) { state_->on_timer(now); }
void TreeNode::on_host_bound(bool won, Time now) { state_->on_host_bound(won, now); }
void TreeNode::on_root_found(int rank, std::vector<std::string> endpoints, Time now) {
  state_->on_root_found(rank, std::move(endpoints), now);
}
TreeConnection TreeNode::on_accepted(Time now) { return state_->on_accepted(now); }
void TreeNode::on_connected(TreeConnection connection, Time now) { state_->on_connected(connection, now); }
void TreeNode::on_bytes(TreeConnection connection, std::span<const std::byte> bytes, Time now) {
  state_->on_bytes(connection, bytes, now);
}
void TreeNode::on_closed(TreeConnection connection, std::string_view reason, Time now) {
  state_->on_closed(connection, reason, now);
}
void TreeNode::set_token(std::string token) { state_->token = std::move(token); }
const std::string& TreeNode::token() const { return state_->token; }

void TreeNode::resolve(int rank, Time now) { state_->resolve(rank, now); }
void TreeNode::forget_record(int rank) { state_->records.erase(rank); }
uint32_t TreeNode::query(std::span<const std::byte> payload, std::chrono::milliseconds patience, Time now) {
  return state_->query(payload, patience, now);
}
void TreeNode::answer(int asker, uint32_t query, std::span<const std::byte> payload, Time) {
  state_->answer(asker, query, payload);
}
void TreeNode::report_dead(int rank, std::string_view reason, Time now) {
  state_->mark_dead({rank}, "seen by " + state_->own_name() + ": " + std::string(reason), 0, now);
}
void TreeNode::leave(Time now) { state_->leave(now); }
TreeProgress TreeNode::progress() const { return state_->progress(); }
const TreeOptions& TreeNode::options() const { return state_->options; }
bool TreeNode::is_ready() const { return state_->ready; }

bool TreeNode::is_leaf() const { return state_->parent != 0 && !has_children(); }

bool TreeNode::has_children() const {
  const auto is_child = [](const auto& connection) {
    return connection->link == State::Link::kChild || connection->link == State::Link::kWelcomed;
  };
  return std::any_of(state_->connections.begin(), state_->connections.end(), is_child);
}

bool TreeNode::is_top() const { return state_->is_top(); }

bool TreeNode::is_needed() const {
  if (!is_top()) return has_children() || state_->parent == 0;
  RankSet others = RankSet::range(0, state_->options.world_size);
  others.erase(state_->options.rank);
  others -= state_->left;
  others -= state_->dead;
  return !others.empty();
}

int TreeNode::num_strangers() const {
  return static_cast<int>(
      std::count_if(state_->connections.begin(), state_->connections.end(),
                    [](const auto& connection) { return connection->link == State::Link::kStranger; }));
}

void TreeNode::drop_strangers(Time came_until) { state_->drop_strangers_until(came_until + kHandshakeTime); }

const RankSet& TreeNode::dead() const { return state_->dead; }
const TreeNode::Statistics& TreeNode::statistics() const { return state_->statistics; }

}  // namespace qx::collectives
