#include "quincunx/torch/distributed/backend.h"

#include <unistd.h>

#include <algorithm>

#include "quincunx/torch/distributed/errors.h"
#include "quincunx/torch/distributed/work.h"

namespace qx::distributed {
namespace {

struct LiveBackends {
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<McclBackend>> list;
};

// Never destroyed: groups may outlive static destruction.
LiveBackends& live_backends() {
  static auto* const live = new LiveBackends;
  return *live;
}

c10::intrusive_ptr<McclBackend> make_backend(std::shared_ptr<collectives::Communicator> communicator) {
  auto backend = c10::make_intrusive<McclBackend>(std::move(communicator));
  LiveBackends& live = live_backends();
  std::lock_guard lock(live.mutex);
  std::erase_if(live.list, [](const auto& weak) { return weak.expired(); });
  live.list.emplace_back(backend);
  return backend;
}

// Ends the group's threads in the process that has them; in a forked child they do not exist and cannot be joined.
template <typename T>
void release(std::shared_ptr<T> pointer, bool forked) {
  if (forked) new std::shared_ptr<T>(std::move(pointer));
}

}  // namespace

c10::intrusive_ptr<McclBackend> McclBackend::create(c10::intrusive_ptr<c10d::Store> store,
                                                    const collectives::Options& options) {
  auto communicator =
      collectives::Communicator::create(options, std::make_shared<StoreAdapter>(std::move(store), options));
  throw_if_error(communicator.status());
  return make_backend(*std::move(communicator));
}

void McclBackend::shutdown_all() {
  std::vector<c10::intrusive_ptr<McclBackend>> backends;
  {
    LiveBackends& live = live_backends();
    std::lock_guard lock(live.mutex);
    for (const auto& weak : live.list) {
      if (auto backend = weak.lock()) backends.push_back(std::move(backend));
    }
  }
  // Newest first: a group may use the connections of an older one.
  for (auto backend = backends.rbegin(); backend != backends.rend(); ++backend) (*backend)->shutdown();
}

McclBackend::McclBackend(std::shared_ptr<collectives::Communicator> communicator)
    : Backend(communicator->options().rank, communicator->options().world_size),
      communicator_(std::move(communicator)),
      options_(c10::make_intrusive<Options>("mccl", communicator_->options().timeout)),
      process_id_(getpid()) {
  options_->group_name = communicator_->options().group_name;
  init();
}

McclBackend::~McclBackend() { shutdown(); }

std::shared_ptr<collectives::Communicator> McclBackend::communicator() const {
  if (getpid() != process_id_) {
    throw_status(failed_precondition("this group belongs to process " + std::to_string(process_id_) +
                                     "; a forked child must initialise a group of its own"));
  }
  std::lock_guard lock(mutex_);
  if (!communicator_) throw_status(failed_precondition("the group " + options_->group_name + " has been shut down"));
  return communicator_;
}

void McclBackend::setTimeout(std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0) {
    throw_status(invalid_argument("timeout: must be positive, got " + std::to_string(timeout.count()) + " ms"));
  }
  communicator()->set_timeout(timeout);
  options_->timeout = timeout;
}

c10::intrusive_ptr<McclBackend> McclBackend::split_members(const std::vector<int>& ranks, const std::string& name,
                                                           std::chrono::milliseconds timeout) {
  for (const int rank : ranks) checked_rank(rank, "ranks");
  if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) return {};
  const auto group = communicator();
  int repetition = 0;
  {
    std::lock_guard lock(mutex_);
    repetition = num_splits_[name]++;
  }
  auto child = group->split(ranks, repetition == 0 ? name : name + "~" + std::to_string(repetition));
  throw_if_error(child.status());
  if (timeout.count() > 0) child.value()->set_timeout(timeout);
  return make_backend(*std::move(child));
}

c10::intrusive_ptr<c10d::Backend> McclBackend::split(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                                     const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<Options>& opts) {
  return split_members(ranks, opts->group_name, opts->timeout);
}

c10::intrusive_ptr<c10d::Backend> McclBackend::shrink(const std::vector<int64_t>& ranks_to_exclude, int flags,
                                                      const c10::intrusive_ptr<Options>& opts_override) {
  constexpr int kAbortFirst = 1;
  std::vector<int> members;
  for (int rank = 0; rank < size_; ++rank) {
    if (std::find(ranks_to_exclude.begin(), ranks_to_exclude.end(), rank) == ranks_to_exclude.end()) {
      members.push_back(rank);
    }
  }
  if ((flags & kAbortFirst) != 0) communicator()->abort("the group is to be shrunk");
  const auto timeout = opts_override ? opts_override->timeout : options_->timeout;
  auto shrunk = split_members(members, options_->group_name + "/shrunk", timeout);
  if (!shrunk) throw_status(invalid_argument("ranks_to_exclude: this rank is among them, and has no part in the rest"));
  return shrunk;
}

void McclBackend::abort() { communicator()->abort("abort() was called on rank " + std::to_string(rank_)); }

void McclBackend::shutdown() {
  std::shared_ptr<collectives::Communicator> group;
  {
    std::lock_guard lock(mutex_);
    group = std::move(communicator_);
  }
  if (!group) return;
  const bool forked = getpid() != process_id_;
  release(std::move(group), forked);
  if (!forked) pool_->stop();
  release(pool_, forked);
}

c10d::ErrorType McclBackend::getError() {
  const collectives::Phase phase = communicator()->progress().phase;
  const bool failed = phase == collectives::Phase::kFailed || phase == collectives::Phase::kAborted;
  return failed ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

int McclBackend::checked_rank(int64_t rank, const std::string& name) const {
  if (rank >= 0 && rank < size_) return static_cast<int>(rank);
  throw_status(invalid_argument(name + ": expected a rank from 0 to " + std::to_string(size_ - 1) + ", got " +
                                std::to_string(rank)));
}

WorkHandle McclBackend::launch(c10d::OpType type, const char* title, collectives::WorkPtr core,
                               OperationTensors tensors) {
  if (core->is_completed()) {
    const Status status = core->status();
    switch (status.code()) {
      case StatusCode::kInvalidArgument:
      case StatusCode::kTypeError:
      case StatusCode::kUnimplemented: throw_status(status);
      default: break;
    }
  }
  auto state = std::make_shared<OperationState>(std::move(tensors), pool_);
  WorkHandle work = c10::make_intrusive<CollectiveWork>(rank_, type, profiler_title(title), std::move(core),
                                                        std::move(state), ++sequence_);
  std::lock_guard lock(coalescing_mutex_);
  if (!coalescing_.empty()) {
    const auto open = coalescing_.find(std::this_thread::get_id());
    if (open != coalescing_.end()) open->second.push_back(work);
  }
  return work;
}

}  // namespace qx::distributed
