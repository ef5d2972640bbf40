// The Communicator: checks arguments, describes the call and gives it to the group.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "quincunx/collectives/bootstrap/mesh.h"
#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/group.h"

namespace qx::collectives {

class MeshCommunicator final : public Communicator {
 public:
  // `members` are ranks of the mesh in the group's order.
  MeshCommunicator(Options options, std::shared_ptr<Mesh> mesh, uint64_t group_id, std::vector<int> members);
  ~MeshCommunicator() override;

  const Options& options() const override { return options_; }
  void set_timeout(std::chrono::milliseconds timeout) override;
  bool ready() const override;
  Status wait_ready(std::chrono::milliseconds timeout) override;
  Progress progress() const override;
  Result<std::shared_ptr<Communicator>> split(std::span<const int> members, const std::string& name) override;

  WorkPtr barrier(std::chrono::milliseconds timeout) override;
  WorkPtr broadcast(Buffer buffer, int root, std::chrono::milliseconds timeout) override;
  WorkPtr all_reduce(Buffer buffer, Reduction reduction, std::chrono::milliseconds timeout) override;
  WorkPtr reduce(Buffer input, Buffer output, int root, Reduction reduction,
                 std::chrono::milliseconds timeout) override;
  WorkPtr all_gather(Buffer input, std::vector<Buffer> outputs, std::chrono::milliseconds timeout) override;
  WorkPtr gather(Buffer input, std::vector<Buffer> outputs, int root, std::chrono::milliseconds timeout) override;
  WorkPtr scatter(std::vector<Buffer> inputs, Buffer output, int root, std::chrono::milliseconds timeout) override;
  WorkPtr reduce_scatter(std::vector<Buffer> inputs, Buffer output, Reduction reduction,
                         std::chrono::milliseconds timeout) override;
  WorkPtr all_to_all(std::vector<Buffer> inputs, std::vector<Buffer> outputs,
                     std::chrono::milliseconds timeout) override;
  WorkPtr send(Buffer buffer, int destination, int tag, std::chrono::milliseconds timeout) override;
  WorkPtr recv(Buffer buffer, int source, int tag, std::chrono::milliseconds timeout) override;

  Result<std::shared_ptr<void>> allocate(int64_t size_bytes) override;
  void abort(const std::string& reason) override;
  std::string statistics_json() const override;

 private:
  struct Counter {
    std::atomic<int64_t> calls{0};
    std::atomic<int64_t> bytes{0};
  };
  WorkPtr collective(const Status& check, const Call& call, std::vector<Buffer> inputs, std::vector<Buffer> outputs,
                     std::chrono::milliseconds timeout);
  WorkPtr pairwise(const Status& check, Operation operation, const Buffer& buffer, int peer, int tag,
                   std::chrono::milliseconds timeout);
  Result<OperationPtr> begin(const Call& call, int peer, std::chrono::milliseconds timeout);
  bool all_members_up() const;  // under the engine's lock
  int size() const { return options_.world_size; }

  const Options options_;
  std::atomic<int64_t> timeout_ms_;
  std::shared_ptr<Mesh> mesh_;
  const std::shared_ptr<Engine> engine_;
  std::unique_ptr<Group> group_;
  std::map<std::string, uint64_t> num_splits_;  // by members and name; under the engine's lock
  std::atomic<int64_t> shared_bytes_allocated_{0};
  std::atomic<int64_t> ordinary_bytes_allocated_{0};
  Counter counters_[static_cast<size_t>(Operation::kRecv) + 1];
};

}  // namespace qx::collectives
