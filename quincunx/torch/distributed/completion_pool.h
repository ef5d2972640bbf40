// Threads that complete futures. User callbacks run here and never on the communicator's own thread: they may take the
// GIL, and may start and wait for further collectives of the same group.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace qx::distributed {

// Starts a thread only when a task finds none idle, so that a task which waits for a later one cannot starve it. A
// thread that has been idle for a second ends. Owned by a shared_ptr, of which every thread holds a copy until stop.
class CompletionPool : public std::enable_shared_from_this<CompletionPool> {
 public:
  // Runs `task` soon; after stop, at once in the calling thread.
  void post(std::function<void()> task);
  // Runs what was posted, then ends all threads. A task may call it too: its own thread ends after that task.
  void stop();

 private:
  void run();
  void retire();  // under the lock

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  std::vector<std::thread> retired_;  // ended, or about to: to be joined
  size_t num_idle_ = 0;
  bool stopping_ = false;
};

}  // namespace qx::distributed
