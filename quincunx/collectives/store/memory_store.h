// A store for ranks that are threads of one process.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "quincunx/collectives/communicator.h"

namespace qx::collectives {

class MemoryStore : public Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return ok_status();
  }

  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const bool there = changed_.wait_for(lock, timeout, [&] { return values_.contains(key); });
    if (!there) return deadline_exceeded("key \"" + key + "\" is not there");
    return values_[key];
  }

  std::string identity() override { return identity_; }

 private:
  static std::string next_identity() {
    static std::atomic<uint64_t> num_stores{0};
    return "memory/" + std::to_string(getpid()) + "/" + std::to_string(num_stores++);
  }

  const std::string identity_ = next_identity();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace qx::collectives
