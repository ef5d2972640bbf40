// A time line of what the threads of this process did, in the format of chrome://tracing and Perfetto.
//
//   start_trace("step.json");
//   { TraceSpan span("all_gather", "mccl"); ... }
//   trace_counter("swapped_bytes", bytes);
//   stop_trace();
//
// QX_TRACE=FILE does the same for a whole program: it starts when the library is loaded and writes at exit. "%p" in a
// file name becomes the process id. While no trace runs, every call below is one load and one branch.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "quincunx/base/status.h"

namespace qx {

inline constexpr int64_t kDefaultMaxTraceEvents = 1'000'000;  // of 72 bytes each

// Creates or empties `path` and starts to record. Events beyond `max_events` (between two flushes) are dropped, and the
// file says how many. Fails if a trace runs already or the file cannot be written.
Status start_trace(const std::string& path, int64_t max_events = kDefaultMaxTraceEvents);

// Appends what was recorded so far and forgets it. The file is valid JSON after each flush. A forked child records on
// its own and appends to the same file when it flushes, stops or exits; one that ends by _exit() must flush first.
Status flush_trace();
// Flushes and stops. Not an error if no trace runs.
Status stop_trace();

namespace detail {
extern std::atomic<bool> trace_enabled;
int64_t trace_now_ns();
void record_span(std::string_view name, const char* category, int64_t begin_ns);
void record_instant(std::string_view name, const char* category);
void record_counter(std::string_view name, double value);
}  // namespace detail

inline bool trace_enabled() { return detail::trace_enabled.load(std::memory_order_relaxed); }

// The time from construction to destruction on this thread. The name must outlive the span and is cut after 38 bytes;
// `category` must live as long as the program (a literal).
class TraceSpan {
 public:
  explicit TraceSpan(std::string_view name, const char* category = "quincunx")
      : name_(name), category_(category), begin_ns_(trace_enabled() ? detail::trace_now_ns() : kOff) {}
  ~TraceSpan() {
    if (begin_ns_ != kOff) detail::record_span(name_, category_, begin_ns_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  static constexpr int64_t kOff = -1;
  const std::string_view name_;
  const char* const category_;
  const int64_t begin_ns_;
};

// A moment on this thread.
inline void trace_instant(std::string_view name, const char* category = "quincunx") {
  if (trace_enabled()) detail::record_instant(name, category);
}
// A value over time, drawn as a curve. Infinite and NaN values are left out: JSON has no way to write them.
inline void trace_counter(std::string_view name, double value) {
  if (trace_enabled()) detail::record_counter(name, value);
}
// What viewers call this thread and this process; kept until changed, whether or not a trace runs.
void set_trace_thread_name(std::string_view name);
void set_trace_process_name(std::string_view name);

}  // namespace qx
