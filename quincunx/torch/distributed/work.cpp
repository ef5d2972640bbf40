#include "quincunx/torch/distributed/work.h"

#include <ATen/core/ivalue.h>

#include <atomic>

#include "quincunx/torch/distributed/errors.h"

namespace qx::distributed {
namespace {

using c10::ivalue::Future;

c10::intrusive_ptr<Future> make_tensor_list_future() {
  return c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
}

}  // namespace

Status OperationState::deliver() {
  std::call_once(delivered_, [this] {
    try {
      tensors_.deliver();
    } catch (const std::exception& error) {
      delivery_ = internal_error(std::string("cannot copy to an output that is not contiguous: ") + error.what());
    }
  });
  return delivery_;
}

void OperationState::end(const Status& status, const std::function<void()>& profiler_end) {
  const Status outcome = status.ok() ? deliver() : status;
  if (profiler_end) profiler_end();
  std::unique_lock lock(mutex_);
  ended_ = true;
  status_ = outcome;
  const auto callbacks = std::move(on_end_);
  const bool has_future = future_.defined();
  lock.unlock();
  for (const auto& callback : callbacks) callback();
  if (has_future) complete_future(outcome);
}

void OperationState::on_end(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_) {
      on_end_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

// `future_` is set and will not change.
void OperationState::complete_future(const Status& status) {
  pool_->post([future = future_, results = tensors_.results, status] {
    if (status.ok()) {
      future->markCompleted(c10::IValue(results));
    } else {
      future->setError(exception_from(status));
    }
  });
}

c10::intrusive_ptr<Future> OperationState::future() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  auto future = make_tensor_list_future();
  future_ = future;
  if (!ended_) return future;
  lock.unlock();
  // Nobody can have added a callback before this returns, so no user code runs here.
  if (status_.ok()) {
    future->markCompleted(c10::IValue(tensors_.results));
  } else {
    future->setError(exception_from(status_));
  }
  return future;
}

CollectiveWork::CollectiveWork(int rank, c10d::OpType type, const char* title, collectives::WorkPtr core,
                               std::shared_ptr<OperationState> state, uint64_t sequence)
    : Work(rank, type, title, state->inputs()), core_(std::move(core)), state_(std::move(state)), sequence_(sequence) {
  core_->on_completion(
      [state = state_, end = recordFunctionEndCallback_](const Status& status) { state->end(status, end); });
}

bool CollectiveWork::isCompleted() {
  if (!core_->is_completed()) return false;
  (void)outcome();
  return true;
}

Status CollectiveWork::outcome() const {
  const Status status = core_->status();
  return status.ok() ? state_->deliver() : status;
}

bool CollectiveWork::isSuccess() const { return core_->is_completed() && outcome().ok(); }

std::exception_ptr CollectiveWork::exception() const {
  if (!core_->is_completed()) return nullptr;
  const Status status = outcome();
  return status.ok() ? nullptr : exception_from(status);
}

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  throw_if_wait_failed(core_->wait(timeout));
  throw_if_error(state_->deliver());
  return true;
}

CoalescedWork::CoalescedWork(int rank, c10d::OpType type, std::vector<c10::intrusive_ptr<c10d::Work>> parts,
                             const char* title, const std::vector<at::Tensor>& inputs)
    : Work(rank, type, title, inputs), parts_(std::move(parts)) {
  if (!recordFunctionEndCallback_) return;
  if (parts_.empty()) recordFunctionEndCallback_();
  auto num_left = std::make_shared<std::atomic<size_t>>(parts_.size());
  for (const auto& part : parts_) {
    static_cast<CollectiveWork&>(*part).state().on_end([num_left, end = recordFunctionEndCallback_] {
      if (--*num_left == 0) end();
    });
  }
}

bool CoalescedWork::isCompleted() {
  bool completed = true;
  for (const auto& part : parts_) completed = part->isCompleted() && completed;
  return completed;
}

bool CoalescedWork::isSuccess() const {
  for (const auto& part : parts_) {
    if (!part->isSuccess()) return false;
  }
  return true;
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& part : parts_) {
    if (std::exception_ptr error = part->exception()) return error;
  }
  return nullptr;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> results;
  for (const auto& part : parts_) {
    for (at::Tensor& tensor : part->result()) results.push_back(std::move(tensor));
  }
  return results;
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (const auto& part : parts_) {
    auto left = timeout;
    if (timeout != kNoTimeout) {
      left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      left = std::max(left, std::chrono::milliseconds(1));
    }
    part->wait(left);
  }
  return true;
}

c10::intrusive_ptr<Future> CoalescedWork::getFuture() {
  auto whole = make_tensor_list_future();
  if (parts_.empty()) {
    whole->markCompleted(c10::IValue(std::vector<at::Tensor>{}));
    return whole;
  }
  auto num_left = std::make_shared<std::atomic<size_t>>(parts_.size());
  auto failed = std::make_shared<std::atomic<bool>>(false);
  const std::vector<at::Tensor> results = result();
  for (const auto& part : parts_) {
    part->getFuture()->addCallback([whole, num_left, failed, results](Future& future) {
      if (future.hasError() && !failed->exchange(true)) whole->setError(future.exception_ptr());
      if (--*num_left == 0 && !*failed) whole->markCompleted(c10::IValue(results));
    });
  }
  return whole;
}

}  // namespace qx::distributed
