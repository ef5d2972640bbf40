#include "quincunx/base/logging.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

// Header-only, so that the runtime needs no shared spdlog or fmt; in this file alone, because they are slow to compile.
#define FMT_HEADER_ONLY
#define SPDLOG_FMT_EXTERNAL
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

namespace qx {
namespace {

struct Level {
  LogLevel level;
  const char* name;
  spdlog::level::level_enum in_spdlog;
};
constexpr Level kLevels[] = {
    {LogLevel::kDebug, "debug", spdlog::level::debug},    {LogLevel::kInfo, "info", spdlog::level::info},
    {LogLevel::kWarning, "warning", spdlog::level::warn}, {LogLevel::kError, "error", spdlog::level::err},
    {LogLevel::kOff, "off", spdlog::level::off},
};

constexpr int kUnset = -1;
std::atomic<int> current_level{kUnset};

// Held while a line is made and written, and across fork: a child never finds it taken by a thread it does not have.
std::mutex line_mutex;

// One write a line: lines of several processes on one terminal or pipe do not mix. The caller holds line_mutex.
class StderrSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const char* next = line.data();
    size_t left = line.size();
    while (left > 0) {
      const ssize_t written = ::write(STDERR_FILENO, next, left);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;  // stderr is closed: there is nowhere left to say so
      next += written;
      left -= static_cast<size_t>(written);
    }
  }
  void flush_() override {}
};

spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* created = new spdlog::logger("quincunx", std::make_shared<StderrSink>());
    created->set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%n] [%l] [pid %P] %v");
    created->set_level(spdlog::level::trace);
    pthread_atfork([] { line_mutex.lock(); }, [] { line_mutex.unlock(); }, [] { line_mutex.unlock(); });
    return created;
  }();
  return *instance;
}

LogLevel level_from_environment() {
  const char* name = std::getenv("QX_LOG_LEVEL");
  const Result<LogLevel> level = name == nullptr ? LogLevel::kWarning : log_level_from_name(name);
  int unset = kUnset;
  const LogLevel chosen = level.ok() ? *level : LogLevel::kWarning;
  // The thread that sets the level is the one that complains.
  if (current_level.compare_exchange_strong(unset, static_cast<int>(chosen)) && !level.ok()) {
    log_message(LogLevel::kWarning, "QX_LOG_LEVEL: " + level.status().message() + "; using warning");
  }
  return static_cast<LogLevel>(current_level.load(std::memory_order_relaxed));
}

}  // namespace

Result<LogLevel> log_level_from_name(std::string_view name) {
  for (const Level& level : kLevels) {
    if (level.name == name) return level.level;
  }
  return invalid_argument("log level: expected debug, info, warning, error or off, got \"" + std::string(name) + "\"");
}

LogLevel log_level() {
  const int level = current_level.load(std::memory_order_relaxed);
  return level == kUnset ? level_from_environment() : static_cast<LogLevel>(level);
}

void set_log_level(LogLevel level) { current_level.store(static_cast<int>(level), std::memory_order_relaxed); }

void log_message(LogLevel level, std::string_view message) {
  if (level == LogLevel::kOff || !log_enabled(level)) return;
  std::string line(message);
  std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  spdlog::logger& target = logger();
  const std::lock_guard lock(line_mutex);
  target.log(kLevels[static_cast<size_t>(level)].in_spdlog, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace qx
