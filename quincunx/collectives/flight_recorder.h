// What this process did last: the latest operations of all its groups, kept at all times and written where one fails.
//   QX_MCCL_FLIGHT_RECORDER=FILE   writes them to FILE ("%p" becomes the process id) when an operation fails: as a
//                                  Chrome trace where the name ends with ".trace.json", else as JSON
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/collectives/call.h"

namespace qx::collectives {

enum class FlightState : uint8_t { kPending, kCompleted, kFailed };

struct FlightRecord {
  uint64_t ticket = 0;  // counts the operations of the process from 1
  FlightState state = FlightState::kPending;
  Operation operation = Operation::kBarrier;
  DType dtype = DType::kUInt8;
  std::array<char, 48> group{};  // its name, cut
  int rank = -1;                 // of this process in the group
  int world_size = 0;
  int peer = -1;           // of a send or receive
  int root = -1;           // or the tag of a send or receive
  uint64_t sequence = 0;   // of a collective in its group
  int64_t size_bytes = 0;  // of the buffer that every rank has
  std::chrono::steady_clock::time_point started, ended;
  StatusCode code = StatusCode::kOk;
  std::string error;

  std::string_view group_name() const { return group.data(); }
  void set_group_name(std::string_view name);
};

class FlightRecorder {
 public:
  static constexpr size_t kCapacity = 2000;

  // That of this process; a forked child starts with an empty one.
  static FlightRecorder& instance();

  // Keeps the record, in place of the oldest, and returns its ticket. Costs tens of nanoseconds. Thread-safe.
  uint64_t begin(FlightRecord record);
  // Does nothing where the record has been replaced.
  void end(uint64_t ticket, const Status& status);

  // Oldest first.
  std::vector<FlightRecord> records() const;
  uint64_t num_recorded() const { return next_ticket_.load(std::memory_order_relaxed) - 1; }
  void clear();

 private:
  struct Slot {
    mutable std::mutex mutex;
    FlightRecord record;
  };
  std::atomic<uint64_t> next_ticket_{1};
  std::array<Slot, kCapacity> slots_;
};

enum class FlightFormat { kJson, kChromeTrace };

// The records as one JSON object. Times are microseconds since the epoch; an operation that has not ended lasts until
// now. In a trace each group is a thread, and operations that have failed are marked.
std::string flight_records_text(FlightFormat format);
// kUnavailable where the file cannot be written.
Status write_flight_records(const std::string& path, FlightFormat format);
// Does what QX_MCCL_FLIGHT_RECORDER asks for, at most once a second; failures to write are logged.
void write_flight_records_after_failure();

}  // namespace qx::collectives
