// Messages for the people who run a program: one line each on stderr, whole even when threads write at once.
//   [2026-01-31 12:00:00.123] [quincunx] [warning] [pid 4711] mccl: rank 3 is late
// QX_LOG_LEVEL chooses the least level that is written: debug, info, warning (the default), error or off. An invalid
// value is reported once.
#pragma once

#include <atomic>
#include <string_view>

#include "quincunx/base/status.h"

namespace qx {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

// "debug", "info", "warning", "error" or "off".
Result<LogLevel> log_level_from_name(std::string_view name);
LogLevel log_level();
void set_log_level(LogLevel level);
inline bool log_enabled(LogLevel level) { return level >= log_level(); }

// Writes the line if the level is enabled. Line breaks in the message become spaces. Thread-safe; forked children may
// log.
void log_message(LogLevel level, std::string_view message);

}  // namespace qx

// The message, an expression that gives a string, is evaluated only if it will be written:
//   QX_LOG_WARNING("mccl: rank " + std::to_string(rank) + " is late");
#define QX_LOG(level, message)                                       \
  do {                                                               \
    if (::qx::log_enabled(level)) ::qx::log_message(level, message); \
  } while (false)
#define QX_LOG_DEBUG(message) QX_LOG(::qx::LogLevel::kDebug, message)
#define QX_LOG_INFO(message) QX_LOG(::qx::LogLevel::kInfo, message)
#define QX_LOG_WARNING(message) QX_LOG(::qx::LogLevel::kWarning, message)
#define QX_LOG_ERROR(message) QX_LOG(::qx::LogLevel::kError, message)

// At most once a process for each place in the source: for a slower path taken instead of the requested one.
#define QX_LOG_WARNING_ONCE(message)                                               \
  do {                                                                             \
    static std::atomic_flag qx_logged_ = ATOMIC_FLAG_INIT;                         \
    if (::qx::log_enabled(::qx::LogLevel::kWarning) && !qx_logged_.test_and_set()) \
      ::qx::log_message(::qx::LogLevel::kWarning, message);                        \
  } while (false)
