#include "quincunx/base/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace qx {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class Logging : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override { set_log_level(LogLevel::kWarning); }
  template <typename F>
  static std::string written_by(F body) {
    testing::internal::CaptureStderr();
    body();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Logging, WritesOneLineWithTimeLevelAndProcess) {
  const std::string text = written_by([] { QX_LOG_WARNING("rank 3 is {late}\nby 2 s"); });
  EXPECT_THAT(text, ContainsRegex("^\\[20..-..-.. ..:..:......\\] \\[quincunx\\] \\[warning\\] \\[pid [0-9]+\\] "));
  EXPECT_THAT(text, testing::EndsWith("rank 3 is {late} by 2 s\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(Logging, LeavesOutWhatIsBelowTheLevel) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError, LogLevel::kOff}) {
    set_log_level(level);
    const std::string text = written_by([] {
      QX_LOG_DEBUG("m");
      QX_LOG_INFO("m");
      QX_LOG_WARNING("m");
      QX_LOG_ERROR("m");
    });
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4 - static_cast<int>(level));
  }
}

TEST_F(Logging, DoesNotEvaluateWhatItDoesNotWrite) {
  int evaluated = 0;
  const auto message = [&] { return std::string(1, static_cast<char>('a' + evaluated++)); };
  EXPECT_EQ(written_by([&] { QX_LOG_INFO(message()); }), "");
  EXPECT_EQ(evaluated, 0);
}

TEST_F(Logging, WarnsOnceForEachPlace) {
  const std::string text = written_by([] {
    for (int i = 0; i < 5; ++i) QX_LOG_WARNING_ONCE("first place");
    for (int i = 0; i < 5; ++i) QX_LOG_WARNING_ONCE("second place");
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST_F(Logging, KeepsLinesOfThreadsApart) {
  const std::string text = written_by([] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([i] {
        for (int k = 0; k < 50; ++k) QX_LOG_ERROR(std::string(100, static_cast<char>('a' + i)) + "$");
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  int lines = 0;
  for (size_t start = 0; start < text.size(); ++lines) {
    const size_t end = text.find('\n', start);
    const std::string line = text.substr(start, end - start);
    EXPECT_EQ(line.substr(line.size() - 101), std::string(100, line[line.size() - 2]) + "$");
    start = end + 1;
  }
  EXPECT_EQ(lines, 200);
}

TEST_F(Logging, WorksInAForkedChildWhoseParentLogs) {
  std::atomic<bool> stop{false};
  const std::string text = written_by([&] {
    std::thread busy([&] {
      while (!stop) {
        QX_LOG_ERROR("parent");
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
    for (int i = 0; i < 10; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(20);
        QX_LOG_ERROR("child");
        _exit(0);
      }
      int status = -1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    stop = true;
    busy.join();
  });
  size_t children = 0;
  for (size_t at = text.find("] child\n"); at != std::string::npos; at = text.find("] child\n", at + 1)) ++children;
  EXPECT_EQ(children, 10u);
}

TEST_F(Logging, KnowsTheNamesOfItsLevels) {
  EXPECT_EQ(log_level_from_name("debug").value(), LogLevel::kDebug);
  EXPECT_EQ(log_level_from_name("off").value(), LogLevel::kOff);
  for (const char* name : {"", "WARNING", "warn", "3"}) {
    EXPECT_THAT(log_level_from_name(name).status().message(), HasSubstr('"' + std::string(name) + '"'));
  }
}

TEST_F(Logging, TakesItsLevelFromTheEnvironment) {
  EXPECT_EXIT(
      {
        setenv("QX_LOG_LEVEL", "info", 1);
        QX_LOG_DEBUG("hidden");
        QX_LOG_INFO("shown");
        std::exit(log_level() == LogLevel::kInfo ? 7 : 8);
      },
      testing::ExitedWithCode(7), "^[^\n]*shown\n$");
}

TEST_F(Logging, ReportsABadLevelOnce) {
  EXPECT_EXIT(
      {
        setenv("QX_LOG_LEVEL", "loud", 1);
        std::exit(log_level() == LogLevel::kWarning && log_level() == LogLevel::kWarning ? 7 : 8);
      },
      testing::ExitedWithCode(7), "^[^\n]*QX_LOG_LEVEL[^\n]*\"loud\"[^\n]*\n$");
}

}  // namespace
}  // namespace qx
