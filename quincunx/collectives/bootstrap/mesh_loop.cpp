// The loop's thread of Mesh: joins the host, climbs into the tree, opens links, and sees deadlines and deaths.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "quincunx/base/fnv1a.h"
#include "quincunx/collectives/bootstrap/mesh.h"
#include "quincunx/collectives/bootstrap/unix_name.h"
#include "quincunx/collectives/security/hmac.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// A program that goes on with other work has the processors for so long, as have the other ranks of the host that come
// at the same time: until then, or until somebody waits for the group, connecting would only be in the way.
constexpr milliseconds kHeadStart{5};
// How long the rank that holds the host's memory may take to hand it over.
constexpr milliseconds kHostPatience{2000};
// After that long without a root, ranks look for each other in the store: later than 64 ranks of a busy machine need,
// as each rank that looks takes one more descriptor of whoever serves the store. Sooner where somebody has to be told.
constexpr milliseconds kRootPatience{500};
constexpr milliseconds kUrgentRootPatience{150};
constexpr milliseconds kUrgent{1000};
// The look at deadlines while operations run, and otherwise.
constexpr milliseconds kBusyTick{50};
constexpr milliseconds kIdleTick{1000};
// How long a rank that is done waits for those that need it: before all are there, to come together; afterwards, those
// below it, to find each other. At the end of a job they leave before it. The top is the last: those whose parents have
// left by then have come to it, and know who comes after it.
constexpr milliseconds kLeavePatience{800};
constexpr milliseconds kLeavePatienceOfTop{1500};
// Spinning longer than a wake-up takes gains nothing: about 30 us on the 2-core machine of development.
constexpr std::chrono::microseconds kSpin{30};

int num_allowed_cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Whoever does not know the job's secret, where it has one, must not come to the same name: what ranks of a host hand
// to each other is not asked for a proof.
Result<std::string> name_of_job(const std::string& identity, const Options& options, const Secret& secret) {
  const char* variable = std::getenv("QX_MCCL_HOST_ID");
  const std::string host = !options.host_id.empty() ? options.host_id : variable != nullptr ? variable : "";
  const std::string text =
      identity + "\n" + options.group_name + "\n" + options.generation + "\n" + std::to_string(geteuid()) + "\n" + host;
  uint64_t hash = fnv1a(text);
  if (!secret.empty()) {
    QX_ASSIGN_OR_RETURN(const Digest digest, hmac_sha256(secret.bytes(), {std::as_bytes(std::span(text))}));
    std::memcpy(&hash, digest.data(), sizeof(hash));
  }
  char name[32];
  std::snprintf(name, sizeof(name), "@qx-mccl-%016llx", static_cast<unsigned long long>(hash));
  return std::string(name);
}

}  // namespace

void Mesh::run_loop() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kHeadStart, [this] { return hurried_.load(); });
  }
  if (const Status status = prepare(); !status.ok()) {
    fail(status);
    const std::lock_guard lock(mutex_);
    has_left_ = true;
    changed_.notify_all();
    return;
  }
  while (!stop_) {
    loop_->run_until(next_timer());
    const auto held = loop_->hold();
    after_events(Clock::now());
  }
}

Status Mesh::prepare() {
  const auto held = loop_->hold();
  describe_this_process(own_);
  if (chosen_interface_.empty()) QX_RETURN_IF_ERROR(bind_doors());
  PeerLinks::Needs needs;
  needs.resolve = [this](int rank, bool afresh) { resolve(rank, afresh); };
  needs.lost = [this](int rank, const std::string& reason) { tree_->report_dead(rank, reason); };
  auto links = std::make_unique<PeerLinks>(*loop_, *engine_, own_, job_id_, credentials_, std::move(needs));
  {
    const Engine::Guard guard(*engine_);
    links_ = std::move(links);
    engine_->use_links(*links_);
  }
  store_thread_ = start_thread([this] { run_store(); });
  helper_thread_ = start_thread([engine = engine_] { engine->run_helper(); });
  return ok_status();
}

Mesh::Clock::time_point Mesh::next_timer() {
  Clock::time_point next = std::min({next_look_, front_door_->next_timer(), links_->next_timer()});
  if (exchange_) next = std::min(next, exchange_->next_timer());
  if (tree_) next = std::min(next, tree_->next_timer());
  if (leave_ && !has_left_) next = std::min(next, leaves_at_);
  return next;
}

void Mesh::after_events(Clock::time_point now) {
  if (front_door_->next_timer() <= now) front_door_->on_timer(now);
  if (exchange_ && exchange_->next_timer() <= now) exchange_->on_timer(now);
  if (tree_ && tree_->next_timer() <= now) tree_->on_timer(now);
  if (links_->next_timer() <= now) links_->on_timer(now);
  num_dropped_ = front_door_->num_dropped() + (tree_ ? tree_->num_dropped() : 0);
  if (next_look_ <= now) {
    bool is_busy = false;
    {
      const std::lock_guard lock(mutex_);
      is_busy = phase_ == Phase::kConnecting;
    }
    if (is_busy) show_progress();
    Engine::Guard guard(*engine_);
    engine_->expire_operations(now);
    next_look_ = now + (is_busy || engine_->has_active_operations() ? kBusyTick : kIdleTick);
  }
  if (!leave_ || has_left_) return;
  if (leave_began_ == Clock::time_point{}) leave_began_ = now;
  leaves_at_ = leave_began_ + (tree_ && tree_->node().is_top() ? kLeavePatienceOfTop : kLeavePatience);
  if (now < leaves_at_ && is_needed()) return;
  if (tree_) {
    tree_->leave();
    if (!tree_->is_drained()) return;
  }
  const std::lock_guard lock(mutex_);
  has_left_ = true;
  changed_.notify_all();
}

// A rank may be done before the last one has come, before others have opened the links that they need, and before those
// who wait for a rank that is gone have been told.
bool Mesh::is_needed() const {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::kConnecting) return !tree_ || !tree_->node().is_leaf();
  return phase_ == Phase::kReady && (!all_share_memory_ || engine_->saw_loss()) && tree_->node().is_needed();
}

void Mesh::join_host(const std::string& identity) {
  Result<std::string> name = name_of_job(identity, options_, credentials_->secret);
  if (!name.ok()) return fail(name.status());
  host_name_ = *std::move(name);
  if (!options_.allow_shared_memory) return start_tree();
  exchange_ = std::make_unique<HostMemoryExchange>(
      *loop_, host_name_ + "-memory", options_.world_size,
      [this](Result<std::shared_ptr<HostMemory>> memory) { on_host_memory(std::move(memory)); });
  exchange_->start(Clock::now(), kHostPatience);
}

void Mesh::on_host_memory(Result<std::shared_ptr<HostMemory>> memory) {
  // Without it the ranks use TCP, and statistics_json says so.
  if (memory.ok()) {
    Result<std::unique_ptr<Segment>> own = Segment::map(**memory, options_.rank);
    if (own.ok() && (*memory)->join(options_.rank).ok()) {
      Engine::Guard guard(*engine_);
      engine_->set_host((*memory)->identity(own_.boot_id));
      links_->use_memory(*memory, std::move(*own));
      engine_->use_doorbell(links_->own_segment()->doorbell());
    }
  }
  start_tree();
}

void Mesh::start_tree() {
  TreeOptions options = tree_options();
  // Where abstract names cannot be had, each rank is a host of its own.
  if (!listen_on_name(options.local_endpoint).ok()) {
    options.local_endpoint = options.host_endpoint = options.endpoints.back();
  }
  Result<std::unique_ptr<TreeNode>> node = TreeNode::create(std::move(options));
  if (!node.ok()) return fail(node.status());
  tree_ = std::make_unique<TreeDriver>(*loop_, std::move(*node), credentials_,
                                       [this](TreeAction action) { on_action(std::move(action)); });
  if (options_.rank == 0) tree_->set_token(own_.token);
  const Status status = tree_->start();
  if (!status.ok()) return fail(status);
  const std::lock_guard lock(mutex_);
  has_tree_ = true;
  changed_.notify_all();
}

std::optional<Proof> Mesh::proof_for(Purpose purpose) const {
  if (purpose == Purpose::kLink) return links_->proof_as_acceptor();
  if (purpose != Purpose::kBootstrap || !tree_ || tree_->token().empty()) return std::nullopt;
  return tree_->proof(false);
}

void Mesh::take_stream(std::shared_ptr<Stream> stream) {
  if (stream->purpose() == Purpose::kLink) return links_->adopt(stream);
  tree_->adopt(std::move(stream));
}

void Mesh::on_action(TreeAction action) {
  switch (action.kind) {
    case TreeAction::Kind::kLookUpRoot: {
      const std::lock_guard lock(mutex_);
      roots_to_fetch_.push_back(action.rank);
      changed_.notify_all();
      return;
    }
    case TreeAction::Kind::kReady: return on_ready();
    case TreeAction::Kind::kFailed: show_progress(); return fail(with_ranks_of_store(action.status));
    case TreeAction::Kind::kPeerDied: return on_peer_died(action.rank, action.status);
    case TreeAction::Kind::kResolved: return on_resolved(std::move(action));
    case TreeAction::Kind::kQuery: return tree_->answer(action.rank, action.query, {});
    default: return;
  }
}

void Mesh::resolve(int rank, bool afresh) {
  // The tree finds nobody before it is complete.
  if (tree_->node().is_ready())
    tree_->resolve(rank, afresh);
  else
    to_resolve_.push_back(rank);
}

void Mesh::on_ready() {
  const HostMemory* memory = links_->memory();
  const int num_local = memory != nullptr ? memory->num_joined() : 1;
  if (exchange_) exchange_->stop_serving();
  all_share_memory_ = num_local == options_.world_size;
  if (all_share_memory_)
    front_door_->close();
  else
    static_cast<void>(front_door_->open_all());
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kConnecting) phase_ = Phase::kReady;
  }
  changed_.notify_all();
  for (const int rank : std::exchange(to_resolve_, {})) tree_->resolve(rank, false);
  Engine::Guard guard(*engine_);
  // Spinning only pays while every rank of this host can be running.
  const bool all_can_run = num_local <= num_allowed_cpus();
  engine_->set_spin(all_can_run ? std::chrono::nanoseconds(kSpin) : std::chrono::nanoseconds(0));
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (!tree_->node().dead().contains(rank)) engine_->set_present(rank);
  }
}

void Mesh::on_peer_died(int rank, const Status& status) {
  const HostMemory* memory = links_->memory();
  const int pid = memory != nullptr ? memory->process_of(rank) : 0;
  const std::string& text = status.message();
  const std::string marker = "has died: ";
  const size_t at = text.find(marker);
  Engine::Guard guard(*engine_);
  engine_->lose_peer(rank, "died: its process " + (pid != 0 ? std::to_string(pid) + " of this host" : "") + ": " +
                               (at == std::string::npos ? text : text.substr(at + marker.size())));
  engine_->wake_waiters();
}

void Mesh::on_resolved(TreeAction action) {
  if (!action.status.ok()) return links_->on_no_record(action.rank, action.status);
  const std::string text(reinterpret_cast<const char*>(action.bytes.data()), action.bytes.size());
  const Result<RankRecord> record = RankRecord::decode(text);
  if (record.ok())
    links_->on_record(action.rank, *record);
  else
    links_->on_no_record(action.rank, record.status());
}

void Mesh::show_progress() {
  std::string text = "has not been seen";
  RankSet missing = RankSet::range(0, options_.world_size);
  missing.erase(options_.rank);
  bool is_attached = false;
  bool sees_no_root = true;
  if (tree_) {
    const TreeProgress progress = tree_->node().progress();
    missing = progress.missing;
    // Before that, and without a root, others may be missing too.
    sees_no_root = !progress.text.empty();
    is_attached = progress.phase == TreeProgress::Phase::kAttached && !sees_no_root;
    if (sees_no_root) text += "; " + progress.text;
  }
  const Clock::time_point now = Clock::now();
  bool is_urgent = options_.timeout <= kUrgent;
  {
    const Engine::Guard guard(*engine_);
    is_urgent = is_urgent || engine_->has_operation_due_by(now + kUrgent);
  }
  RankSet there;
  {
    const std::lock_guard lock(mutex_);
    if (!store_error_.empty()) text += "; store: " + store_error_;
    if (!front_door_->refusal().empty()) text += "; " + front_door_->refusal();
    missing_ = missing;
    there = ranks_of_store_;
    const bool looks = sees_no_root && now >= started_ + (is_urgent ? kUrgentRootPatience : kRootPatience);
    if (looks && !looks_for_ranks_) changed_.notify_all();
    looks_for_ranks_ = looks;
    // Where the store cannot be asked either, the root alone is missing for certain.
    if (sees_no_root && !has_looked_at_all_) there = RankSet::range(1, options_.world_size);
  }
  Engine::Guard guard(*engine_);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (engine_->peer_state(rank) != Engine::PeerState::kConnecting) continue;
    engine_->set_there(rank, sees_no_root && there.contains(rank));
    // Groups of ranks that are there need not wait for the others.
    if (missing.contains(rank) || !is_attached)
      engine_->set_connect_state(rank, text);
    else
      engine_->set_present(rank);
  }
}

}  // namespace qx::collectives
