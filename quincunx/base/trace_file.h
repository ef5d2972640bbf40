// The file of a trace: {"traceEvents":[...]}, valid JSON after each append, shared by processes through a file lock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "quincunx/base/status.h"

namespace qx {

struct TraceEvent {
  char name[39] = {};
  char phase = 'i';  // 'X' span, 'i' instant, 'C' counter
  const char* category = "";
  int64_t time_ns = 0;
  int64_t duration_ns = 0;  // of a span
  double value = 0;         // of a counter
};
static_assert(sizeof(TraceEvent) == 72);

// One JSON object each, followed by ",\n". Text is escaped; bytes that are not UTF-8 become question marks.
void append_event(std::string& json, const TraceEvent& event, int64_t process_id, int64_t thread_id);
// `kind` is "thread_name" or "process_name".
void append_name(std::string& json, const char* kind, std::string_view name, int64_t process_id, int64_t thread_id);
void append_dropped(std::string& json, int64_t count, int64_t time_ns, int64_t process_id);

// Creates the file, or empties it.
Status create_trace_file(const std::string& path);
// `events` is a sequence of the objects above. Locks the file, so that processes may append at once.
Status append_to_trace_file(const std::string& path, std::string events);

}  // namespace qx
