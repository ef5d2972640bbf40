// How the ranks of a host come to share one HostMemory: whoever binds the name first makes it, and sends its descriptor
// to the others that come. Nobody waits: the answer comes on the event loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "quincunx/base/status.h"
#include "quincunx/collectives/bootstrap/event_loop.h"
#include "quincunx/collectives/transport/host_memory.h"

namespace qx::collectives {

// All methods are called on the loop's thread.
class HostMemoryExchange {
 public:
  using Clock = EventLoop::Clock;
  using Done = std::function<void(Result<std::shared_ptr<HostMemory>>)>;

  // `name` is "@" and a name that the ranks of this job on this host have in common, and no others.
  HostMemoryExchange(EventLoop& loop, std::string name, int world_size, Done done);
  ~HostMemoryExchange();
  HostMemoryExchange(const HostMemoryExchange&) = delete;
  HostMemoryExchange& operator=(const HostMemoryExchange&) = delete;

  // `done` is called once, perhaps from within; at the latest when the patience is over.
  void start(Clock::time_point now, std::chrono::milliseconds patience);
  // All have come: gives the name back.
  void stop_serving();
  Clock::time_point next_timer() const { return next_attempt_; }
  void on_timer(Clock::time_point now);
  // In a child after fork.
  void close_descriptors();

 private:
  void attempt(Clock::time_point now);
  void serve();
  void receive();
  void retry(const Status& reason);
  void finish(Result<std::shared_ptr<HostMemory>> memory);

  EventLoop& loop_;
  const std::string name_;
  const int world_size_;
  Done done_;
  Socket listener_, connection_;
  std::shared_ptr<HostMemory> memory_;  // of whoever serves it
  Clock::time_point deadline_, next_attempt_ = Clock::time_point::max();
};

}  // namespace qx::collectives
