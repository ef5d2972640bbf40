// mccl: collectives between processes on CPUs. A communicator connects in a background thread: creating it returns at
// once, and the first operation waits for its own group only, never longer than its deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quincunx/base/dtype.h"
#include "quincunx/base/status.h"

namespace qx::collectives {

struct Credentials;  // security/secure_channel.h

enum class ReduceOp { kSum, kAverage, kProduct, kMin, kMax, kBitAnd, kBitOr, kBitXor, kPreMulSum };

// One reduction: bf16, f16 and f8 accumulate in f32 and round once; pre_multiplier is for kPreMulSum alone.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double pre_multiplier = 1.0;
  bool operator==(const Reduction& other) const = default;
};

// Contiguous memory of `count` elements. Null data is allowed where count is 0.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kUInt8;
  int64_t size_bytes() const { return count * dtype_size_bytes(dtype); }
};

// Where ranks publish their addresses. get waits for the key until the deadline. Called from the background thread.
// Keys are namespaced by Options::group_name and Options::generation.
class Store {
 public:
  virtual ~Store() = default;
  virtual Status set(const std::string& key, const std::string& value) = 0;
  virtual Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Tells this store from others that processes of one host may use at the same time, and is the same on all of them.
  // Empty: not known; ranks of a host then wait for rank 0 before they find each other. May wait, like get.
  virtual std::string identity() { return {}; }
  // The last communicator over this store has said goodbye and asks for nothing more: a set or get that still waits is
  // to end. Called from another thread. A store that others use too does nothing of the kind.
  virtual void close() {}
};

struct Options {
  int rank = 0;
  int world_size = 1;
  std::string group_name = "default";
  std::string generation;  // differs between restarts of one job, so that stale keys are never read
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
  std::string interface_address;  // numeric address to listen on; empty: loopback on one host, else QX_MCCL_INTERFACE
  bool allow_shared_memory = true;
  std::shared_ptr<const Credentials> credentials;  // null: those of the environment
  // Only ranks with the same text can be on one host; empty: that of QX_MCCL_HOST_ID, which may be empty too.
  std::string host_id;
};

enum class Phase { kConnecting, kReady, kFailed, kAborted };

struct Progress {
  Phase phase = Phase::kConnecting;
  std::vector<int> ranks_seen;  // those that have come, and perhaps left in order; the dead are missing
  std::vector<int> ranks_missing;
  std::string error;  // why the phase is kFailed
};

// One started operation. Buffers must stay alive until it has ended. Thread-safe.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool is_completed() const = 0;
  // Ok or the operation's error. Waits at most `timeout`; zero means the operation's own deadline. On expiry the error
  // names operation, sequence number, group, bytes and the exact ranks that are missing or late. kAborted while the
  // operation goes on: the wait was interrupted (interruption.h).
  virtual Status wait(std::chrono::milliseconds timeout = {}) = 0;
  virtual Status status() const = 0;
  // Source rank of a finished receive.
  virtual int source_rank() const = 0;
  // Called once, from the thread that ends the operation, or at once where it has ended. Set at most once.
  virtual void on_completion(std::function<void(const Status&)> callback) = 0;
};
using WorkPtr = std::shared_ptr<Work>;

// All ranks of a group call the same collectives in the same order; a mismatch of operation, dtype, size or root is an
// error on all of them. Operations are queued and run in order; send and recv have an order of their own for each peer
// and tag. A timeout of zero means options().timeout. Methods are thread-safe. Invalid arguments give a Work that has
// already failed and leave the group usable. After a timeout or a dead peer the group refuses further operations.
class Communicator {
 public:
  // Validates the options and starts the background thread; never waits for a peer.
  static Result<std::shared_ptr<Communicator>> create(const Options& options, std::shared_ptr<Store> store);
  virtual ~Communicator() = default;

  virtual const Options& options() const = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  virtual bool ready() const = 0;
  // May be interrupted as Work::wait.
  virtual Status wait_ready(std::chrono::milliseconds timeout) = 0;
  virtual Progress progress() const = 0;

  // The members' own order gives the new ranks. Local: reuses this group's connections; members only call it.
  virtual Result<std::shared_ptr<Communicator>> split(std::span<const int> members, const std::string& name) = 0;

  virtual WorkPtr barrier(std::chrono::milliseconds timeout = {}) = 0;
  virtual WorkPtr broadcast(Buffer buffer, int root, std::chrono::milliseconds timeout = {}) = 0;
  virtual WorkPtr all_reduce(Buffer buffer, Reduction reduction, std::chrono::milliseconds timeout = {}) = 0;
  // Only root's output is written; it may be the input.
  virtual WorkPtr reduce(Buffer input, Buffer output, int root, Reduction reduction,
                         std::chrono::milliseconds timeout = {}) = 0;
  // outputs[r] receives rank r's input; the sizes may differ between ranks (all ranks pass the same sizes).
  virtual WorkPtr all_gather(Buffer input, std::vector<Buffer> outputs, std::chrono::milliseconds timeout = {}) = 0;
  // outputs is empty but on root.
  virtual WorkPtr gather(Buffer input, std::vector<Buffer> outputs, int root,
                         std::chrono::milliseconds timeout = {}) = 0;
  // inputs is empty but on root.
  virtual WorkPtr scatter(std::vector<Buffer> inputs, Buffer output, int root,
                          std::chrono::milliseconds timeout = {}) = 0;
  // inputs[r] is reduced into rank r's output; sizes may differ between ranks r.
  virtual WorkPtr reduce_scatter(std::vector<Buffer> inputs, Buffer output, Reduction reduction,
                                 std::chrono::milliseconds timeout = {}) = 0;
  // inputs[r] goes to rank r; outputs[r] comes from rank r. Sizes may be zero and uneven.
  virtual WorkPtr all_to_all(std::vector<Buffer> inputs, std::vector<Buffer> outputs,
                             std::chrono::milliseconds timeout = {}) = 0;
  virtual WorkPtr send(Buffer buffer, int destination, int tag, std::chrono::milliseconds timeout = {}) = 0;
  // source -1 receives from any rank.
  virtual WorkPtr recv(Buffer buffer, int source, int tag, std::chrono::milliseconds timeout = {}) = 0;

  // Memory that the ranks of this host read where it lies: collectives on it copy nothing through rings. Whole pages,
  // contents undefined; given back when the last copy of the pointer goes, which may be after the communicator has
  // gone. Ordinary memory where the ranks of a host share none; statistics_json tells how many bytes were which. In a
  // forked child the memory stays shared with the parent. Zero bytes are allowed.
  virtual Result<std::shared_ptr<void>> allocate(int64_t size_bytes) = 0;

  // Wakes every waiter with kAborted; later operations fail at once. Does not wait for peers.
  virtual void abort(const std::string& reason) = 0;
  // Bytes and calls by operation, as one JSON object, for reports.
  virtual std::string statistics_json() const = 0;
};

}  // namespace qx::collectives
