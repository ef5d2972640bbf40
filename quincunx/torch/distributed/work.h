// What c10d hands to the user for one started operation.
#pragma once

#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "quincunx/torch/distributed/completion_pool.h"
#include "quincunx/torch/distributed/tensors.h"

namespace qx::distributed {

// The side that ends with the operation, whether or not the user still holds the Work.
class OperationState {
 public:
  OperationState(OperationTensors tensors, std::shared_ptr<CompletionPool> pool)
      : tensors_(std::move(tensors)), pool_(std::move(pool)) {}

  // Delivers outputs that are not contiguous, once; whoever first sees the operation complete calls it.
  Status deliver();
  // Called once, by the thread that ends the operation.
  void end(const Status& status, const std::function<void()>& profiler_end);
  // Calls `callback` when the operation has ended, or at once where it has.
  void on_end(std::function<void()> callback);
  c10::intrusive_ptr<c10::ivalue::Future> future();
  const std::vector<at::Tensor>& results() const { return tensors_.results; }
  const std::vector<at::Tensor>& inputs() const { return tensors_.inputs; }

 private:
  void complete_future(const Status& status);

  OperationTensors tensors_;
  std::shared_ptr<CompletionPool> pool_;
  std::once_flag delivered_;
  Status delivery_;
  std::mutex mutex_;
  bool ended_ = false;
  Status status_;
  std::vector<std::function<void()>> on_end_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class CollectiveWork : public c10d::Work {
 public:
  CollectiveWork(int rank, c10d::OpType type, const char* title, collectives::WorkPtr core,
                 std::shared_ptr<OperationState> state, uint64_t sequence);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return core_->source_rank(); }
  std::vector<at::Tensor> result() override { return state_->results(); }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return state_->future(); }
  uint64_t getSequencenumber() const override { return sequence_; }
  OperationState& state() const { return *state_; }

 private:
  Status outcome() const;

  collectives::WorkPtr core_;
  std::shared_ptr<OperationState> state_;
  const uint64_t sequence_;
};

// Several operations seen as one: complete when all are, failed when one is.
class CoalescedWork : public c10d::Work {
 public:
  // With a title the profiler sees one operation on `inputs`, from here until the last part has ended.
  CoalescedWork(int rank, c10d::OpType type, std::vector<c10::intrusive_ptr<c10d::Work>> parts,
                const char* title = nullptr, const std::vector<at::Tensor>& inputs = {});

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> parts_;
};

}  // namespace qx::distributed
