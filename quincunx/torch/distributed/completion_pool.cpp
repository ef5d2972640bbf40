#include "quincunx/torch/distributed/completion_pool.h"

#include <utility>

namespace qx::distributed {

void CompletionPool::post(std::function<void()> task) {
  {
    std::unique_lock lock(mutex_);
    if (stopping_) {
      lock.unlock();
      task();
      return;
    }
    tasks_.push_back(std::move(task));
    if (num_idle_ < tasks_.size()) threads_.emplace_back([self = shared_from_this()] { self->run(); });
  }
  wake_.notify_one();
}

void CompletionPool::stop() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

void CompletionPool::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++num_idle_;
    wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    --num_idle_;
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace qx::distributed
