#include "quincunx/collectives/flight_recorder.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <nlohmann/json.hpp>

#include "quincunx/base/logging.h"

namespace qx::collectives {
namespace {

using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

constexpr std::chrono::seconds kPauseBetweenFiles{1};

alignas(FlightRecorder) std::byte storage[sizeof(FlightRecorder)];

// A child's recorder is made anew in the same place: its locks may have been held while the parent forked.
FlightRecorder* make_in_place() { return new (storage) FlightRecorder; }

const char* state_name(FlightState state) {
  switch (state) {
    case FlightState::kPending: return "pending";
    case FlightState::kCompleted: return "completed";
    case FlightState::kFailed: return "failed";
  }
  return "unknown";
}

int64_t microseconds_since_epoch(steady_clock::time_point time) {
  const auto age = std::chrono::duration_cast<microseconds>(steady_clock::now() - time);
  return std::chrono::duration_cast<microseconds>(system_clock::now().time_since_epoch()).count() - age.count();
}

bool is_pairwise(const FlightRecord& record) {
  return record.operation == Operation::kSend || record.operation == Operation::kRecv;
}

json to_json(const FlightRecord& record) {
  json object = {{"id", record.ticket},
                 {"operation", operation_name(record.operation)},
                 {"group", record.group_name()},
                 {"rank", record.rank},
                 {"world_size", record.world_size},
                 {"dtype", dtype_name(record.dtype)},
                 {"bytes", record.size_bytes},
                 {"state", state_name(record.state)},
                 {"started_us", microseconds_since_epoch(record.started)}};
  if (is_pairwise(record)) {
    object["peer"] = record.peer;
    object["tag"] = record.root;
  } else {
    object["sequence"] = record.sequence;
    if (record.root >= 0) object["root"] = record.root;
  }
  if (record.state != FlightState::kPending) object["ended_us"] = microseconds_since_epoch(record.ended);
  if (record.state == FlightState::kFailed) {
    object["error_code"] = status_code_name(record.code);
    object["error"] = record.error;
  }
  return object;
}

json as_operations(const std::vector<FlightRecord>& records) {
  json operations = json::array();
  for (const FlightRecord& record : records) operations.push_back(to_json(record));
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return {{"version", 1},
          {"process_id", getpid()},
          {"host", host},
          {"capacity", FlightRecorder::kCapacity},
          {"num_recorded", FlightRecorder::instance().num_recorded()},
          {"operations", std::move(operations)}};
}

json as_trace(const std::vector<FlightRecord>& records) {
  json events = json::array();
  std::map<std::string_view, int> thread_of_group;
  for (const FlightRecord& record : records) {
    const int thread = thread_of_group.try_emplace(record.group_name(), thread_of_group.size() + 1).first->second;
    const bool pending = record.state == FlightState::kPending;
    const auto end = pending ? steady_clock::now() : record.ended;
    std::string name(operation_name(record.operation));
    if (!is_pairwise(record)) name += " #" + std::to_string(record.sequence);
    if (record.state != FlightState::kCompleted) name += std::string(" (") + state_name(record.state) + ")";
    events.push_back({{"name", std::move(name)},
                      {"cat", "mccl"},
                      {"ph", "X"},
                      {"pid", getpid()},
                      {"tid", thread},
                      {"ts", microseconds_since_epoch(record.started)},
                      {"dur", std::chrono::duration_cast<microseconds>(end - record.started).count()},
                      {"args", to_json(record)}});
  }
  for (const auto& [name, thread] : thread_of_group) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", getpid()},
                      {"tid", thread},
                      {"args", {{"name", "mccl group " + std::string(name)}}}});
  }
  return {{"traceEvents", std::move(events)}};
}

std::string with_process_id(std::string path) {
  const size_t place = path.find("%p");
  return place == std::string::npos ? path : path.replace(place, 2, std::to_string(getpid()));
}

}  // namespace

void FlightRecord::set_group_name(std::string_view name) {
  const size_t length = std::min(name.size(), group.size() - 1);
  std::memcpy(group.data(), name.data(), length);
  group[length] = '\0';
}

FlightRecorder& FlightRecorder::instance() {
  static FlightRecorder* const recorder = [] {
    pthread_atfork(nullptr, nullptr, [] { make_in_place(); });
    return make_in_place();
  }();
  return *recorder;
}

uint64_t FlightRecorder::begin(FlightRecord record) {
  const uint64_t ticket = next_ticket_.fetch_add(1, std::memory_order_relaxed);
  record.ticket = ticket;
  Slot& slot = slots_[ticket % kCapacity];
  const std::lock_guard lock(slot.mutex);
  // A thread that was held up between the two lines has been overtaken by a whole round.
  if (slot.record.ticket < ticket) slot.record = std::move(record);
  return ticket;
}

void FlightRecorder::end(uint64_t ticket, const Status& status) {
  Slot& slot = slots_[ticket % kCapacity];
  const auto now = steady_clock::now();
  const std::lock_guard lock(slot.mutex);
  if (slot.record.ticket != ticket) return;
  slot.record.ended = now;
  slot.record.state = status.ok() ? FlightState::kCompleted : FlightState::kFailed;
  if (status.ok()) return;
  slot.record.code = status.code();
  slot.record.error = status.message();
}

std::vector<FlightRecord> FlightRecorder::records() const {
  std::vector<FlightRecord> records;
  for (const Slot& slot : slots_) {
    const std::lock_guard lock(slot.mutex);
    if (slot.record.ticket != 0) records.push_back(slot.record);
  }
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.ticket < b.ticket; });
  return records;
}

void FlightRecorder::clear() {
  for (Slot& slot : slots_) {
    const std::lock_guard lock(slot.mutex);
    slot.record = {};
  }
}

std::string flight_records_text(FlightFormat format) {
  const std::vector<FlightRecord> records = FlightRecorder::instance().records();
  const json object = format == FlightFormat::kJson ? as_operations(records) : as_trace(records);
  // Group names and errors may hold any bytes.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Status write_flight_records(const std::string& path, FlightFormat format) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".part";
  {
    std::ofstream file(temporary, std::ios::binary);
    file << flight_records_text(format) << '\n';
    if (!file.flush()) {
      static_cast<void>(std::remove(temporary.c_str()));
      return unavailable("path: cannot write \"" + temporary + "\"");
    }
  }
  // Whoever reads it sees a whole file.
  if (std::rename(temporary.c_str(), path.c_str()) == 0) return ok_status();
  const std::string reason = std::strerror(errno);
  static_cast<void>(std::remove(temporary.c_str()));
  return unavailable("path: cannot rename to \"" + path + "\": " + reason);
}

void write_flight_records_after_failure() {
  const char* const pattern = std::getenv("QX_MCCL_FLIGHT_RECORDER");
  if (pattern == nullptr || *pattern == '\0') return;
  static std::mutex mutex;
  static steady_clock::time_point last;
  const std::unique_lock lock(mutex, std::try_to_lock);
  const auto now = steady_clock::now();
  if (!lock.owns_lock() || (last != steady_clock::time_point() && now - last < kPauseBetweenFiles)) return;
  last = now;
  const std::string path = with_process_id(pattern);
  const Status status =
      write_flight_records(path, path.ends_with(".trace.json") ? FlightFormat::kChromeTrace : FlightFormat::kJson);
  if (!status.ok()) QX_LOG_WARNING("mccl flight recorder: " + status.message());
}

}  // namespace qx::collectives
