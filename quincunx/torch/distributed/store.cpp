#include "quincunx/torch/distributed/store.h"

#include <algorithm>
#include <thread>

namespace qx::distributed {
namespace {

using std::chrono::steady_clock;

// A rank that is already there is seen within the first steps; 64 ranks that wait for one send 3,000 requests a second.
constexpr std::chrono::microseconds kFirstPause{200};
constexpr std::chrono::microseconds kLongestPause{20000};

}  // namespace

std::string StoreAdapter::full_key(const std::string& key) {
  std::lock_guard lock(mutex_);
  if (join_count_ == 0) join_count_ = store_->add(prefix_ + "joined/" + std::to_string(rank_), 1);
  return prefix_ + std::to_string(join_count_) + "/" + key;
}

Status StoreAdapter::set(const std::string& key, const std::string& value) {
  try {
    store_->set(full_key(key), std::vector<uint8_t>(value.begin(), value.end()));
    return ok_status();
  } catch (const std::exception& error) {
    return unavailable("store: cannot set key " + key + ": " + error.what());
  }
}

Result<std::string> StoreAdapter::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  try {
    const std::string name = full_key(key);
    for (auto pause = kFirstPause; !cancelled_; pause = std::min(2 * pause, kLongestPause)) {
      if (store_->check({name})) {
        const std::vector<uint8_t> value = store_->get(name);
        return std::string(value.begin(), value.end());
      }
      if (steady_clock::now() >= deadline) {
        return deadline_exceeded("store: key " + key + " was not set within " + std::to_string(timeout.count()) +
                                 " ms");
      }
      std::this_thread::sleep_for(pause);
    }
    return aborted("store: the group was shut down while it waited for key " + key);
  } catch (const std::exception& error) {
    return unavailable("store: cannot get key " + key + ": " + error.what());
  }
}

}  // namespace qx::distributed
