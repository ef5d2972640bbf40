#include "quincunx/base/trace.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <vector>

#include "quincunx/base/logging.h"
#include "quincunx/base/trace_file.h"

namespace qx {
namespace detail {

std::atomic<bool> trace_enabled{false};

int64_t trace_now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);  // one clock for all processes of the machine
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace detail

namespace {

// The events of one thread. Its mutex is free but for the moments of a flush.
struct ThreadEvents {
  std::mutex mutex;
  int64_t thread_id = 0;
  std::string name;
  std::vector<TraceEvent> events;
  bool finished = false;
};

// Everything that a forked child starts anew: it has none of the other threads, which may hold any of the mutexes.
struct Recorder {
  std::mutex mutex;
  std::string path;
  std::string process_name;
  int64_t max_events = 0;
  std::atomic<int64_t> num_events{0};
  std::atomic<int64_t> num_dropped{0};
  std::vector<std::unique_ptr<ThreadEvents>> threads;
  Recorder* parent = nullptr;  // before the fork; reachable, so that leak checkers stay silent
};

std::atomic<Recorder*> current_recorder{nullptr};

// Where this thread records. Plain data: it can be used even while the thread's destructors run.
struct ThreadSlot {
  Recorder* recorder = nullptr;
  ThreadEvents* events = nullptr;
};
thread_local ThreadSlot slot;

struct SlotRelease {
  ~SlotRelease() {
    if (slot.events != nullptr && slot.recorder == current_recorder.load(std::memory_order_acquire)) {
      const std::lock_guard lock(slot.events->mutex);
      slot.events->finished = true;
    }
    slot = {};
  }
};

void restart_in_child() {
  Recorder* const parent = current_recorder.load(std::memory_order_relaxed);
  auto* child = new Recorder;
  child->path = parent->path;
  child->process_name = parent->process_name;
  child->max_events = parent->max_events;
  child->parent = parent;
  current_recorder.store(child, std::memory_order_release);
  parent->mutex.unlock();  // the forking thread, which is this one, locked it
}

void stop_at_exit() {
  const Status status = stop_trace();
  if (!status.ok()) QX_LOG_ERROR("trace: " + status.message());
}

// The mutex is held across fork, so that the child copies a path that nobody is writing.
Recorder& recorder() {
  static Recorder* const first = [] {
    auto* created = new Recorder;
    current_recorder.store(created, std::memory_order_release);
    pthread_atfork([] { current_recorder.load()->mutex.lock(); }, [] { current_recorder.load()->mutex.unlock(); },
                   &restart_in_child);
    return created;
  }();
  static_cast<void>(first);
  return *current_recorder.load(std::memory_order_acquire);
}

ThreadEvents& this_thread() {
  Recorder& owner = recorder();
  if (slot.events != nullptr && slot.recorder == &owner) return *slot.events;
  static thread_local SlotRelease release;
  static_cast<void>(&release);
  auto created = std::make_unique<ThreadEvents>();
  created->thread_id = ::syscall(SYS_gettid);
  if (slot.events != nullptr) created->name = slot.events->name;  // the forking thread keeps its name
  slot = {&owner, created.get()};
  const std::lock_guard lock(owner.mutex);
  owner.threads.push_back(std::move(created));
  return *slot.events;
}

void record(std::string_view name, TraceEvent event) {
  ThreadEvents& target = this_thread();
  Recorder& owner = *slot.recorder;
  if (owner.num_events.fetch_add(1, std::memory_order_relaxed) >= owner.max_events) {
    owner.num_events.fetch_sub(1, std::memory_order_relaxed);
    owner.num_dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const size_t length = std::min(name.size(), sizeof(event.name) - 1);
  std::memcpy(event.name, name.data(), length);
  event.name[length] = '\0';
  const std::lock_guard lock(target.mutex);
  target.events.push_back(event);
}

// Takes all events out of the recorder, as JSON. The caller holds its mutex.
std::string take_events(Recorder& owner) {
  std::string json;
  const int64_t process_id = ::getpid();
  bool any = false;
  std::vector<std::unique_ptr<ThreadEvents>> alive;
  for (auto& thread : owner.threads) {
    std::unique_lock lock(thread->mutex);
    if (!thread->events.empty()) {
      any = true;
      if (!thread->name.empty()) append_name(json, "thread_name", thread->name, process_id, thread->thread_id);
      for (const TraceEvent& event : thread->events) append_event(json, event, process_id, thread->thread_id);
      owner.num_events.fetch_sub(static_cast<int64_t>(thread->events.size()), std::memory_order_relaxed);
      std::vector<TraceEvent>().swap(thread->events);
    }
    const bool finished = thread->finished;
    lock.unlock();
    if (!finished) alive.push_back(std::move(thread));
  }
  owner.threads = std::move(alive);
  if (any && !owner.process_name.empty()) append_name(json, "process_name", owner.process_name, process_id, 0);
  const int64_t dropped = owner.num_dropped.exchange(0, std::memory_order_relaxed);
  if (dropped > 0) append_dropped(json, dropped, detail::trace_now_ns(), process_id);
  return json;
}

Status flush(Recorder& owner) {
  if (owner.path.empty()) return ok_status();
  return append_to_trace_file(owner.path, take_events(owner));
}

std::string with_process_id(std::string path) {
  const size_t place = path.find("%p");
  return place == std::string::npos ? path : path.replace(place, 2, std::to_string(::getpid()));
}

// At load: the environment may ask for a trace, and a recorder that exists early needs no care when a fork comes.
bool start_by_environment() noexcept {
  recorder();
  const char* path = std::getenv("QX_TRACE");
  if (path == nullptr || *path == '\0') return false;
  const Status status = start_trace(path);
  if (!status.ok()) QX_LOG_ERROR("QX_TRACE: " + status.message());
  return status.ok();
}
[[maybe_unused]] const bool started_by_environment = start_by_environment();

}  // namespace

namespace detail {

void record_span(std::string_view name, const char* category, int64_t begin_ns) {
  TraceEvent event;
  event.phase = 'X';
  event.category = category;
  event.time_ns = begin_ns;
  event.duration_ns = trace_now_ns() - begin_ns;
  record(name, event);
}

void record_instant(std::string_view name, const char* category) {
  TraceEvent event;
  event.category = category;
  event.time_ns = trace_now_ns();
  record(name, event);
}

void record_counter(std::string_view name, double value) {
  if (!std::isfinite(value)) return;
  TraceEvent event;
  event.phase = 'C';
  event.time_ns = trace_now_ns();
  event.value = value;
  record(name, event);
}

}  // namespace detail

Status start_trace(const std::string& path, int64_t max_events) {
  if (path.empty()) return invalid_argument("path: expected the name of a file, got an empty string");
  if (max_events < 1) return invalid_argument("max_events: must be positive, got " + std::to_string(max_events));
  Recorder& owner = recorder();
  const std::lock_guard lock(owner.mutex);
  if (!owner.path.empty()) return failed_precondition("a trace to \"" + owner.path + "\" runs already");
  const std::string file = with_process_id(path);
  QX_RETURN_IF_ERROR(create_trace_file(file));
  static const int at_exit = std::atexit(&stop_at_exit);
  static_cast<void>(at_exit);
  owner.path = file;
  owner.max_events = max_events;
  detail::trace_enabled.store(true, std::memory_order_relaxed);
  return ok_status();
}

Status flush_trace() {
  Recorder& owner = recorder();
  const std::lock_guard lock(owner.mutex);
  return flush(owner);
}

Status stop_trace() {
  Recorder& owner = recorder();
  const std::lock_guard lock(owner.mutex);
  detail::trace_enabled.store(false, std::memory_order_relaxed);
  const Status status = flush(owner);
  owner.path.clear();
  return status;
}

void set_trace_thread_name(std::string_view name) {
  ThreadEvents& target = this_thread();
  const std::lock_guard lock(target.mutex);
  target.name = name;
}

void set_trace_process_name(std::string_view name) {
  Recorder& owner = recorder();
  const std::lock_guard lock(owner.mutex);
  owner.process_name = name;
}

}  // namespace qx
