#include "quincunx/torch/distributed/completion_pool.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace qx::distributed {
namespace {

constexpr std::chrono::seconds kLongestIdleTime{1};

}  // namespace

void CompletionPool::post(std::function<void()> task) {
  std::vector<std::thread> retired;
  {
    std::unique_lock lock(mutex_);
    if (stopping_) {
      lock.unlock();
      task();
      return;
    }
    retired.swap(retired_);
    tasks_.push_back(std::move(task));
    if (num_idle_ < tasks_.size()) threads_.emplace_back([self = shared_from_this()] { self->run(); });
  }
  wake_.notify_one();
  for (std::thread& thread : retired) thread.join();
}

void CompletionPool::stop() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    std::move(retired_.begin(), retired_.end(), std::back_inserter(threads));
    retired_.clear();
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

void CompletionPool::retire() {
  const auto own = std::find_if(threads_.begin(), threads_.end(), [](const std::thread& thread) {
    return thread.get_id() == std::this_thread::get_id();
  });
  if (own == threads_.end()) return;  // stop has it
  retired_.push_back(std::move(*own));
  threads_.erase(own);
}

void CompletionPool::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++num_idle_;
    wake_.wait_for(lock, kLongestIdleTime, [this] { return stopping_ || !tasks_.empty(); });
    --num_idle_;
    if (tasks_.empty()) return retire();
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace qx::distributed
