// One started operation, as its caller sees it (Work) and as its group keeps it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "quincunx/collectives/call.h"
#include "quincunx/collectives/communicator.h"

namespace qx::collectives {

class Engine;
class Group;
using Clock = std::chrono::steady_clock;

class OperationState final : public Work, public std::enable_shared_from_this<OperationState> {
 public:
  // What an operation is, before it has begun.
  struct Description {
    Call call;
    std::string group_name;
    int peer = -1;  // of a send or receive, as a rank of the group
    Clock::time_point started;
    std::chrono::milliseconds timeout{0};
  };
  OperationState(std::shared_ptr<Engine> engine, Group* group, Description description);
  // One that has failed before it began.
  explicit OperationState(Status failure);

  bool is_completed() const override { return ended_.load(std::memory_order_acquire); }
  Status wait(std::chrono::milliseconds timeout) override;
  Status status() const override;
  int source_rank() const override { return is_completed() ? source_rank_ : -1; }
  void on_completion(std::function<void(const Status&)> callback) override;

  // Under the engine's lock. Returns the callback, to be called without it.
  std::function<void(const Status&)> end(Status status, int source_rank = -1);
  // Under the engine's lock, once the operation has its sequence number: the flight recorder keeps it from now on.
  void record();
  // "all_reduce #3 of group 'default' (4096 bytes)"
  std::string label() const;
  Clock::time_point deadline() const { return description_.started + description_.timeout; }
  const Description& description() const { return description_; }
  Group* group() const { return group_; }

  uint64_t sequence = 0;

 private:
  const std::shared_ptr<Engine> engine_;
  Group* const group_ = nullptr;  // outlives the operation until it has ended
  const Description description_;
  uint64_t ticket_ = 0;  // of the flight recorder
  std::atomic<bool> ended_{false};
  Status status_;
  int source_rank_ = -1;
  std::mutex callback_mutex_;
  std::function<void(const Status&)> callback_;
};
using OperationPtr = std::shared_ptr<OperationState>;

}  // namespace qx::collectives
