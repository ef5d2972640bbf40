#include "quincunx/torch/activation/timeline.h"

#include <atomic>
#include <chrono>

namespace qx::activation {
namespace {

std::atomic<bool> g_records = false;
std::mutex g_mutex;  // guards the next
std::shared_ptr<Timeline> g_recording;

}  // namespace

bool Timeline::start() {
  const std::lock_guard lock(g_mutex);
  if (g_recording) return false;
  g_recording = shared_from_this();
  g_records = true;
  return true;
}

void Timeline::stop() {
  const std::lock_guard lock(g_mutex);
  if (g_recording.get() != this) return;
  g_records = false;
  g_recording.reset();
}

std::vector<TimelineEvent> Timeline::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void Timeline::add(Holder holder, int64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  int64_t& live_bytes = live_bytes_[static_cast<size_t>(holder)];
  live_bytes += num_bytes;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  events_.push_back({std::chrono::nanoseconds(now).count(), holder, live_bytes});
}

std::shared_ptr<HeldBytes> HeldBytes::make(Holder holder, int64_t num_bytes) {
  if (!g_records.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard lock(g_mutex);
  return g_recording ? std::make_shared<HeldBytes>(g_recording, holder, num_bytes) : nullptr;
}

HeldBytes::HeldBytes(std::shared_ptr<Timeline> timeline, Holder holder, int64_t num_bytes)
    : timeline_(std::move(timeline)), holder_(holder), num_bytes_(num_bytes) {
  timeline_->add(holder_, num_bytes_);
}

HeldBytes::~HeldBytes() { timeline_->add(holder_, -num_bytes_); }

}  // namespace qx::activation
