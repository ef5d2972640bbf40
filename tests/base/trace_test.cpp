#include "quincunx/base/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace qx {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Parsed by an independent reader, which throws on anything that is not JSON.
std::vector<json> events_in(const std::string& path, const std::string& phase = "") {
  std::vector<json> events;
  const json document = json::parse(contents(path));
  for (const json& event : document.at("traceEvents")) {
    if (phase.empty() || event.at("ph") == phase) events.push_back(event);
  }
  return events;
}

class Trace : public testing::Test {
 protected:
  void SetUp() override {
    path = testing::TempDir() + "trace_test_" + std::to_string(::getpid()) + ".json";
    std::filesystem::remove(path);
  }
  void TearDown() override {
    EXPECT_TRUE(stop_trace().ok());
    std::filesystem::remove(path);
  }
  std::string path;
};

TEST_F(Trace, WritesSpansInstantsAndCounters) {
  ASSERT_TRUE(start_trace(path).ok());
  {
    const TraceSpan span("step", "muon");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    trace_instant("arrived");
    trace_counter("bytes", 12.5);
  }
  ASSERT_TRUE(stop_trace().ok());
  const json span = events_in(path, "X").at(0);
  EXPECT_EQ(span.at("name"), "step");
  EXPECT_EQ(span.at("cat"), "muon");
  EXPECT_GE(span.at("dur").get<double>(), 2000.0);
  EXPECT_EQ(span.at("pid"), ::getpid());
  const json instant = events_in(path, "i").at(0);
  EXPECT_EQ(instant.at("tid"), span.at("tid"));
  EXPECT_GE(instant.at("ts").get<double>(), span.at("ts").get<double>() + 2000.0);
  EXPECT_LE(instant.at("ts").get<double>(), span.at("ts").get<double>() + span.at("dur").get<double>());
  EXPECT_EQ(events_in(path, "C").at(0).at("args").at("value"), 12.5);
}

TEST_F(Trace, RecordsNothingWhileOff) {
  {
    const TraceSpan span("before");
  }
  ASSERT_TRUE(start_trace(path).ok());
  ASSERT_TRUE(stop_trace().ok());
  trace_instant("after");
  EXPECT_TRUE(events_in(path).empty());
}

TEST_F(Trace, IsValidAfterEachFlush) {
  ASSERT_TRUE(start_trace(path).ok());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(events_in(path).size(), i);
    trace_instant("again");
    ASSERT_TRUE(flush_trace().ok());
  }
}

TEST_F(Trace, EscapesNames) {
  ASSERT_TRUE(start_trace(path).ok());
  trace_instant("quote\" back\\ line\n \x01 \xc3\xa4");
  trace_instant("bad \xff\xc0\x80\xed\xa0\x80 end");
  trace_instant(std::string(37, 'a') + "\xc3\xa4");  // the cut falls into the letter
  ASSERT_TRUE(stop_trace().ok());
  const auto events = events_in(path);
  EXPECT_EQ(events.at(0).at("name"), "quote\" back\\ line\n \x01 \xc3\xa4");
  EXPECT_EQ(events.at(1).at("name"), "bad ?????? end");
  EXPECT_EQ(events.at(2).at("name"), std::string(37, 'a') + "?");
}

TEST_F(Trace, LeavesOutCountersThatJsonCannotHold) {
  ASSERT_TRUE(start_trace(path).ok());
  trace_counter("c", std::numeric_limits<double>::infinity());
  trace_counter("c", std::numeric_limits<double>::quiet_NaN());
  trace_counter("c", -0.1);
  ASSERT_TRUE(stop_trace().ok());
  ASSERT_EQ(events_in(path).size(), 1u);
  EXPECT_EQ(events_in(path).at(0).at("args").at("value"), -0.1);
}

TEST_F(Trace, KeepsEventsAndNamesOfThreads) {
  ASSERT_TRUE(start_trace(path).ok());
  set_trace_process_name("rank 0");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      set_trace_thread_name("worker " + std::to_string(i));
      for (int k = 0; k < 100; ++k) const TraceSpan span("work");
    });
  }
  for (int k = 0; k < 10; ++k) EXPECT_TRUE(flush_trace().ok());
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(stop_trace().ok());
  EXPECT_EQ(events_in(path, "X").size(), 400u);
  std::vector<std::string> names;
  for (const json& event : events_in(path, "M")) names.push_back(event.at("args").at("name"));
  for (const char* name : {"worker 0", "worker 1", "worker 2", "worker 3", "rank 0"}) {
    EXPECT_THAT(names, testing::Contains(name));
  }
  set_trace_process_name("");
}

TEST_F(Trace, DropsEventsBeyondItsLimitAndSaysHowMany) {
  ASSERT_TRUE(start_trace(path, 10).ok());
  for (int i = 0; i < 25; ++i) trace_counter("c", i);
  ASSERT_TRUE(flush_trace().ok());
  for (int i = 0; i < 5; ++i) trace_counter("c", i);
  ASSERT_TRUE(stop_trace().ok());
  EXPECT_EQ(events_in(path, "C").size(), 15u);
  const auto dropped = events_in(path, "i");
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped.at(0).at("args").at("count"), 15);
}

TEST_F(Trace, MergesForkedChildren) {
  ASSERT_TRUE(start_trace(path).ok());
  trace_instant("parent");
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      trace_instant("child");
      _exit(flush_trace().ok() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  ASSERT_TRUE(stop_trace().ok());
  std::vector<std::string> names;
  std::vector<int64_t> processes;
  for (const json& event : events_in(path)) {
    names.push_back(event.at("name"));
    if (event.at("name") == "child") processes.push_back(event.at("pid"));
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("parent", "child", "child", "child"));
  EXPECT_THAT(processes, testing::Not(testing::Contains(int64_t{::getpid()})));
}

TEST_F(Trace, RefusesBadArgumentsAndSecondTraces) {
  EXPECT_EQ(start_trace("").code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(start_trace(path, 0).message(), HasSubstr("max_events: must be positive, got 0"));
  EXPECT_THAT(start_trace("/nonexistent/folder/trace.json").message(), HasSubstr("/nonexistent/folder/trace.json"));
  EXPECT_FALSE(trace_enabled());
  ASSERT_TRUE(start_trace(path).ok());
  EXPECT_EQ(start_trace(path).code(), StatusCode::kFailedPrecondition);
}

TEST_F(Trace, NoticesThatItsFileWasReplaced) {
  ASSERT_TRUE(start_trace(path).ok());
  std::ofstream(path) << "something else";
  trace_instant("late");
  EXPECT_EQ(flush_trace().code(), StatusCode::kDataLoss);
  EXPECT_EQ(contents(path), "something else");
}

// Started at load, written at exit: this needs a program of its own, for which this test program itself serves.
TEST(TraceProgram, DISABLED_RecordsOneInstant) { trace_instant("from the program"); }

TEST_F(Trace, FollowsTheEnvironment) {
  const std::string folder = testing::TempDir() + "trace_test_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "QX_TRACE='" + folder + "/%p.json' '" + program +
                              "' --gtest_also_run_disabled_tests --gtest_filter='TraceProgram.*' > /dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto events = events_in(entry.path());
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events.at(0).at("name"), "from the program");
    EXPECT_EQ(entry.path().filename().string(), events.at(0).at("pid").dump() + ".json");
  }
  EXPECT_GT(std::filesystem::remove_all(folder), 1u);
}

}  // namespace
}  // namespace qx
