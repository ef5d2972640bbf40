// The c10d backend "mccl": checks tensors, passes them as buffers to a communicator, and returns its work.
//   backend.cpp         life of a group, timeouts, splitting
//   collectives.cpp     one tensor or one list a rank
//   allocation.cpp      tensors in memory that ranks share
//   coalesced.cpp       several operations as one
//   point_to_point.cpp  send and recv
//   sparse.cpp          all_reduce of sparse tensors
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <unordered_map>
#include <vector>

#include "quincunx/collectives/communicator.h"
#include "quincunx/torch/distributed/completion_pool.h"
#include "quincunx/torch/distributed/store.h"
#include "quincunx/torch/distributed/tensors.h"

namespace qx::distributed {

using WorkHandle = c10::intrusive_ptr<c10d::Work>;
using TensorList = std::vector<at::Tensor>;
using TensorLists = std::vector<TensorList>;

class McclBackend : public c10d::Backend {
 public:
  // Returns at once: the communicator connects in its own thread.
  static c10::intrusive_ptr<McclBackend> create(c10::intrusive_ptr<c10d::Store> store,
                                                const collectives::Options& options);
  // Shuts down every group that still lives, before the interpreter goes.
  static void shutdown_all();

  explicit McclBackend(std::shared_ptr<collectives::Communicator> communicator);
  ~McclBackend() override;
  // The last owner has gone; the list of live groups may still keep the memory.
  void release_resources() override { shutdown(); }

  // The group itself; RuntimeError after shutdown and in a forked child.
  std::shared_ptr<collectives::Communicator> communicator() const;
  // The group of `ranks` of this one over its connections; null where this rank is not among them.
  c10::intrusive_ptr<McclBackend> split_members(const std::vector<int>& ranks, const std::string& name,
                                                std::chrono::milliseconds timeout);

  const std::string getBackendName() const override { return "mccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  bool supportsShrinking() const override { return true; }
  // The group of the other ranks over the connections of this one, which may have failed. `flags` 1: aborts it first.
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& ranks_to_exclude, int flags,
                                           const c10::intrusive_ptr<Options>& opts_override) override;
  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;
  // All ranks count from zero, so there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }

  // Memory that the ranks of this host read where it lies: see Communicator::allocate.
  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;  // NOLINT(google-runtime-int): torch's

  bool supportsCoalescing() const override { return true; }
  // Operations of this thread until endCoalescing start at once and are waited for together.
  void startCoalescing() override;
  WorkHandle endCoalescing() override;

  WorkHandle broadcast(TensorList& tensors, const c10d::BroadcastOptions& opts) override;
  WorkHandle allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  WorkHandle allreduce_sparse(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  WorkHandle reduce(TensorList& tensors, const c10d::ReduceOptions& opts) override;
  WorkHandle allgather(TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& opts) override;
  WorkHandle _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkHandle gather(TensorLists& outputs, TensorList& inputs, const c10d::GatherOptions& opts) override;
  WorkHandle scatter(TensorList& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkHandle reduce_scatter(TensorList& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkHandle _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                  const c10d::ReduceScatterOptions& opts) override;
  WorkHandle alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_split_sizes,
                           std::vector<int64_t>& input_split_sizes, const c10d::AllToAllOptions& opts) override;
  WorkHandle alltoall(TensorList& outputs, TensorList& inputs, const c10d::AllToAllOptions& opts) override;
  WorkHandle barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  WorkHandle allreduce_coalesced(TensorList& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkHandle allgather_coalesced(TensorLists& outputs, TensorList& inputs, const c10d::AllgatherOptions& opts) override;
  WorkHandle allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                             const c10d::AllgatherOptions& opts) override;
  WorkHandle reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                             const c10d::ReduceScatterOptions& opts) override;

  WorkHandle send(TensorList& tensors, int destination, int tag) override;
  WorkHandle recv(TensorList& tensors, int source, int tag) override;
  WorkHandle recvAnysource(TensorList& tensors, int tag) override;

 private:
  // A started operation as c10d's Work; throws where the communicator refused its arguments.
  WorkHandle launch(c10d::OpType type, const char* title, collectives::WorkPtr core, OperationTensors tensors);
  // Null within a coalesced operation, of which the profiler sees the whole.
  static const char* profiler_title(const char* title);
  int checked_rank(int64_t rank, const std::string& name) const;

  mutable std::mutex mutex_;
  std::shared_ptr<collectives::Communicator> communicator_;
  std::shared_ptr<CompletionPool> pool_ = std::make_shared<CompletionPool>();
  c10::intrusive_ptr<Options> options_;
  // torch gives a group of the same ranks the same name again when the first is gone.
  std::unordered_map<std::string, int> num_splits_;
  std::atomic<uint64_t> sequence_ = 0;
  const int process_id_;
  std::mutex coalescing_mutex_;
  std::unordered_map<std::thread::id, std::vector<WorkHandle>> coalescing_;
};

// c10d marks an absent timeout with -1, a communicator with 0.
inline std::chrono::milliseconds timeout_from(std::chrono::milliseconds timeout) {
  return std::max(timeout, std::chrono::milliseconds(0));
}
// The only element of a list that c10d keeps for the sake of several devices a process.
template <typename T>
T& only(std::vector<T>& list, const char* name) {
  check_list(list.size(), 1, name);
  return list[0];
}

}  // namespace qx::distributed
