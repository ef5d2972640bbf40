#include "quincunx/torch/distributed/store.h"

#include <algorithm>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "quincunx/torch/distributed/network_store.h"

namespace qx::distributed {
namespace {

using std::chrono::steady_clock;

// A rank that is already there is seen within the first steps; 64 ranks that wait for one send 3,000 requests a second.
constexpr std::chrono::microseconds kFirstPause{200};
constexpr std::chrono::microseconds kLongestPause{20000};
constexpr std::chrono::milliseconds kShortestWait{1};
// A store that has failed is asked again after these: torch's log says each time that its connection is broken.
constexpr std::chrono::milliseconds kFirstPauseAfterFailure{50};
constexpr std::chrono::milliseconds kLongestPauseAfterFailure{5000};
constexpr std::chrono::milliseconds kComparisonPause{200};

c10::intrusive_ptr<c10d::Store> without_prefixes(const c10::intrusive_ptr<c10d::Store>& store) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
  return prefixed != nullptr ? prefixed->getUnderlyingNonPrefixStore() : store;
}

}  // namespace

StoreAdapter::StoreAdapter(c10::intrusive_ptr<c10d::Store> store, const collectives::Options& options)
    : store_(std::move(store)),
      rank_(options.rank),
      group_name_(options.group_name),
      prefix_("mccl/" + options.generation + "/") {
  if (dynamic_cast<NetworkStore*>(without_prefixes(store_).get()) == nullptr) return;
  store_ = store_->clone();
  network_ = static_cast<NetworkStore*>(without_prefixes(store_).get());
}

void StoreAdapter::close() {
  cancelled_ = true;
  if (network_ != nullptr) network_->core().cancel();
}

std::string StoreAdapter::identity() {
  std::string place;
  if (network_ != nullptr) place = network_->core().identity();
  if (auto* const file = dynamic_cast<c10d::FileStore*>(without_prefixes(store_).get())) place = file->getPath();
  try {
    return place.empty() ? place : place + "|" + full_key("");
  } catch (const std::exception&) {
    return {};  // get will tell
  }
}

int64_t StoreAdapter::count_joining() {
  if (network_ != nullptr) return network_->count_joining(prefix_ + group_name_);
  return store_->add(prefix_ + "joined/" + std::to_string(rank_), 1);
}

std::string StoreAdapter::full_key(const std::string& key) {
  std::lock_guard lock(mutex_);
  if (join_count_ == 0) join_count_ = count_joining();
  return prefix_ + std::to_string(join_count_) + "/" + key;
}

void StoreAdapter::wait_for(const std::string& name, std::chrono::steady_clock::duration limit) {
  try {
    store_->wait({name}, std::max(std::chrono::duration_cast<std::chrono::milliseconds>(limit), kShortestWait));
  } catch (const c10::DistStoreError&) {
    // The caller tells that the time is over.
  }
}

Status StoreAdapter::fail(const std::string& what, const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  failure_ = unavailable("store: " + what + ": " + (of_torch ? of_torch->what_without_backtrace() : error.what()));
  pause_ = std::clamp<steady_clock::duration>(2 * pause_, kFirstPauseAfterFailure, kLongestPauseAfterFailure);
  next_try_ = steady_clock::now() + (network_ == nullptr ? pause_ : steady_clock::duration());
  return failure_;
}

Status StoreAdapter::compare_with_root() {
  if (network_ != nullptr) return network_->core().trouble();
  const auto now = steady_clock::now();
  if (rank_ == 0 || now < next_comparison_) return comparison_;
  next_comparison_ = now + kComparisonPause;
  comparison_ = ok_status();
  const std::string name = prefix_ + "joined/0";
  if (!store_->check({name})) return comparison_;
  const std::vector<uint8_t> text = store_->get(name);
  const std::string of_root(text.begin(), text.end()), own = std::to_string(join_count_);
  if (of_root == own) return comparison_;
  comparison_ =
      failed_precondition("rank 0 has joined " + of_root + " times over this store, this rank " + own +
                          " times, and they meet where it is the same: where a rank was started again "
                          "alone, all are to start again, over a new store or file or with another generation");
  return comparison_;
}

Status StoreAdapter::set(const std::string& key, const std::string& value) {
  if (steady_clock::now() < next_try_) return failure_;
  try {
    store_->set(full_key(key), std::vector<uint8_t>(value.begin(), value.end()));
    return ok_status();
  } catch (const std::exception& error) {
    return fail("cannot set key " + key, error);
  }
}

Result<std::string> StoreAdapter::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  if (steady_clock::now() < next_try_) return failure_;
  // A rank 0 that is not there must not hold up the thread for as long as the store's operations may take.
  if (network_ != nullptr) network_->setTimeout(std::max(timeout, kShortestWait));
  try {
    const std::string name = full_key(key);
    for (auto pause = kFirstPause; !cancelled_; pause = std::min(2 * pause, kLongestPause)) {
      if (store_->check({name})) {
        const std::vector<uint8_t> value = store_->get(name);
        failure_ = ok_status();
        pause_ = {};
        return std::string(value.begin(), value.end());
      }
      if (steady_clock::now() >= deadline) {
        const Status reason = compare_with_root();
        if (!reason.ok()) return reason;
        return deadline_exceeded("store: key " + key + " was not set within " + std::to_string(timeout.count()) +
                                 " ms");
      }
      if (network_ != nullptr) {
        wait_for(name, deadline - steady_clock::now());
      } else {
        std::this_thread::sleep_for(pause);
      }
    }
    return aborted("store: the group was shut down while it waited for key " + key);
  } catch (const std::exception& error) {
    const Status reason = network_ != nullptr ? network_->core().trouble() : ok_status();
    if (!reason.ok()) return reason;
    if (cancelled_) return aborted("store: the group was shut down while it waited for key " + key);
    return fail("cannot get key " + key, error);
  }
}

}  // namespace qx::distributed
