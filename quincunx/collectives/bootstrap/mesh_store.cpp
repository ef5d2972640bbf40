// The store thread of Mesh: what names the job on this host, where roots listen, and whether other hosts take part.
#include <algorithm>

#include "quincunx/collectives/bootstrap/mesh.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;

// One look into the store; also how late an end of the store thread can be.
constexpr milliseconds kFetchSlice{20};
constexpr milliseconds kStorePause{20};
// A store that answers at once must not be asked in a busy loop.
constexpr milliseconds kPauseWhereAbsent{2};
// What a rank that cannot reach a root may ask for at a time, and how often.
constexpr int kRanksOfOneLook = 32;
constexpr milliseconds kLookPause{50};
// Rank 0 adds it to its record some time after all ranks were there.
constexpr std::string_view kComplete = "|complete";
constexpr milliseconds kCompletePause{200};

bool is_absent(const Status& status) {
  return status.code() == StatusCode::kDeadlineExceeded || status.code() == StatusCode::kNotFound;
}

}  // namespace

std::string Mesh::key(const std::string& name) const {
  return "qx.mccl/" + options_.group_name + "/" + options_.generation + "/" + name;
}

bool Mesh::publish(const std::string& name, const std::string& value) {
  while (!stop_) {
    const Status status = store_->set(key(name), value);
    std::unique_lock lock(mutex_);
    if (status.ok()) return true;
    store_error_ = status.message();
    if (phase_ != Phase::kConnecting) return false;
    changed_.wait_for(lock, kStorePause);
  }
  return false;
}

std::optional<std::string> Mesh::fetch(const std::string& name) {
  while (!stop_) {
    Result<std::string> value = store_->get(key(name), kFetchSlice);
    std::unique_lock lock(mutex_);
    if (value.ok()) {
      store_error_.clear();
      return *std::move(value);
    }
    if (looks_for_ranks_ && Clock::now() >= next_look_for_ranks_) {
      lock.unlock();
      look_for_ranks();
      lock.lock();
    }
    const bool fails = !is_absent(value.status());
    store_error_ = fails ? value.status().message() : "";
    if (phase_ == Phase::kFailed || phase_ == Phase::kAborted) return std::nullopt;
    changed_.wait_for(lock, fails ? kStorePause : kPauseWhereAbsent);
  }
  return std::nullopt;
}

void Mesh::look_for_ranks() {
  const std::string own = "here/" + std::to_string(options_.rank);
  if (!is_in_store_) is_in_store_ = store_->set(key(own), "1").ok();
  for (int looks = 0, steps = 0; looks < kRanksOfOneLook && steps < options_.world_size && !stop_; ++steps) {
    const int rank = rank_to_look_for_;
    rank_to_look_for_ = (rank + 1) % options_.world_size;
    if (rank_to_look_for_ == 0) {
      const std::lock_guard lock(mutex_);
      has_looked_at_all_ = true;
    }
    if (rank == options_.rank || ranks_of_store_.contains(rank)) continue;
    ++looks;
    const Status here = store_->get(key("here/" + std::to_string(rank)), milliseconds(1)).status();
    const std::lock_guard lock(mutex_);
    if (here.ok()) {
      ranks_of_store_.insert(rank);
    } else if (!is_absent(here)) {  // nor will it tell of the others
      has_looked_at_all_ = false;
      if (store_error_.empty()) store_error_ = here.message();
      break;
    }
  }
  next_look_for_ranks_ = Clock::now() + kLookPause;
}

// Of a job that did not come up because no root could be reached: the ranks that are missing are those that neither
// the tree nor the store knows of.
Status Mesh::with_ranks_of_store(const Status& status) {
  const std::string text = tree_->node().progress().text;
  const std::lock_guard lock(mutex_);
  if (status.code() != StatusCode::kDeadlineExceeded) return status;
  std::string known = store_error_.empty() ? "" : "; store: " + store_error_;
  if (!front_door_->refusal().empty()) known += "; " + front_door_->refusal();
  if (text.empty() || !has_looked_at_all_) return deadline_exceeded(status.message() + known);
  RankSet missing = RankSet::range(0, options_.world_size);
  missing.erase(options_.rank);
  missing -= ranks_of_store_;
  if (missing.empty()) return deadline_exceeded(status.message() + known);
  const std::string verb = missing.count() == 1 ? " is" : " are";
  return deadline_exceeded((missing.count() == 1 ? "rank " : "ranks ") + missing.to_string() + " of " +
                           std::to_string(options_.world_size) + verb + " missing, the root among them: " + text +
                           known);
}

// Ranks of a host find each other by it: two jobs must not have the same.
std::optional<std::string> Mesh::fetch_identity() {
  std::string identity = store_->identity();
  if (!identity.empty()) return identity;
  if (options_.rank == 0) return publish("job", own_.token) ? std::optional(own_.token) : std::nullopt;
  return fetch("job");
}

void Mesh::fetch_root(int rank) {
  std::optional<std::string> text = fetch("root/" + std::to_string(rank));
  if (!text) return;
  if (text->ends_with(kComplete)) {
    text->resize(text->size() - kComplete.size());
    const std::lock_guard lock(mutex_);
    store_error_ =
        "all ranks were there before this process came; where one is started again alone, the others have to "
        "start again too";
  }
  const Result<RankRecord> record = RankRecord::decode(*text);
  if (!record.ok()) return fail(record.status());
  if (record->rank != rank) {
    return fail(failed_precondition("rank " + std::to_string(rank) + " published the record of rank " +
                                    std::to_string(record->rank)));
  }
  if (record->world_size != options_.world_size) {
    return fail(failed_precondition("rank " + std::to_string(rank) + " has world size " +
                                    std::to_string(record->world_size) + ", this rank has " +
                                    std::to_string(options_.world_size)));
  }
  const bool is_elsewhere = !record->shares_loopback(own_);
  if (is_elsewhere && !record->takes_external) publish("external", "1");
  loop_->post([this, rank, is_elsewhere, record = *record] {
    if (is_elsewhere) static_cast<void>(front_door_->open_all());
    if (rank == 0) tree_->set_token(record.token);
    tree_->on_root_found(rank, record.endpoints_for(own_));
  });
}

// A root lets other hosts in when one of them has asked.
bool Mesh::let_in_other_hosts() {
  const Status asked = store_->get(key("external"), kFetchSlice).status();
  if (!asked.ok()) {
    const std::lock_guard lock(mutex_);
    store_error_ = is_absent(asked) ? "" : asked.message();
    return false;
  }
  loop_->post([this] {
    const Status status = front_door_->open_all();
    if (!status.ok()) fail(status);
  });
  return true;
}

void Mesh::run_store() {
  const std::optional<std::string> identity = fetch_identity();
  if (!identity) return;
  loop_->post([this, identity = *identity] { join_host(identity); });
  const bool root = is_root();
  if (root) {
    // Whoever finds a root expects an answer.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_tree_ || stop_ || phase_ != Phase::kConnecting; });
    lock.unlock();
    if (!publish("root/" + std::to_string(options_.rank), own_.encode())) return;
  }
  bool may_be_asked = root && !own_.takes_external && !own_.external_endpoints.empty();
  bool has_token = options_.rank == 0;
  bool is_to_tell = options_.rank == 0;
  std::unique_lock lock(mutex_);
  while (!stop_ && phase_ != Phase::kFailed && phase_ != Phase::kAborted) {
    if (!roots_to_fetch_.empty()) {
      const int rank = roots_to_fetch_.front();
      roots_to_fetch_.pop_front();
      lock.unlock();
      // All prove to each other that they know the token of rank 0.
      if (!has_token && rank != 0) fetch_root(0);
      has_token = true;
      fetch_root(rank);
      lock.lock();
    } else if (may_be_asked && phase_ == Phase::kConnecting) {
      lock.unlock();
      may_be_asked = !let_in_other_hosts();
      lock.lock();
      if (roots_to_fetch_.empty()) changed_.wait_for(lock, kPauseWhereAbsent);
    } else if (looks_for_ranks_ && phase_ == Phase::kConnecting) {
      lock.unlock();
      look_for_ranks();
      lock.lock();
      if (roots_to_fetch_.empty()) changed_.wait_for(lock, kLookPause);
    } else if (is_to_tell && phase_ == Phase::kReady) {
      // Not while the first operations run.
      is_to_tell = false;
      const bool has_changed = changed_.wait_for(lock, kCompletePause, [this] { return stop_ || !failure_.ok(); });
      lock.unlock();
      // Where it fails, a rank that comes too late is told less.
      if (!has_changed) static_cast<void>(store_->set(key("root/0"), own_.encode() + std::string(kComplete)));
      lock.lock();
    } else {
      changed_.wait(lock);
    }
  }
}

}  // namespace qx::collectives
