// One thread's wait for many descriptors, with what other threads want done on it.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  // With the events of epoll(7). May watch and forget descriptors, its own among them.
  using Handler = std::function<void(uint32_t events)>;

  static Result<std::unique_ptr<EventLoop>> create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // --- any thread
  // Runs the task on the loop's thread, after what was posted before. Dropped once the loop has gone.
  void post(std::function<void()> task);
  void wake();
  // While it is held no handler and no task runs. Whoever calls it from within one gets it at once.
  std::unique_lock<std::recursive_mutex> hold() { return std::unique_lock(busy_); }

  // --- the loop's thread, or before it has begun
  // Edge-triggered: the handler reads and writes until the descriptor would block.
  void watch(int fd, uint32_t events, Handler handler);
  // To be called before the descriptor is closed.
  void forget(int fd);
  // Waits for events, at most until the time, and handles them and what was posted.
  void run_until(Clock::time_point limit);
  // In a child after fork.
  void close_descriptors();

 private:
  struct Watched {
    std::shared_ptr<Handler> handler;
    uint32_t serial = 0;  // tells events of a descriptor from those of an earlier one with its number
  };
  EventLoop() = default;
  void run_posted();

  Socket epoll_;
  Socket wake_;
  std::vector<Watched> watched_;  // by descriptor
  uint32_t next_serial_ = 1;
  std::vector<epoll_event> events_;
  std::recursive_mutex busy_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace qx::collectives
