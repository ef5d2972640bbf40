#include "quincunx/parallel/thread_count.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "quincunx/base/cpu_count.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ThreadCount, ReadsWholeNumbersInRange) {
  EXPECT_EQ(parse_thread_count("1").value(), 1);
  EXPECT_EQ(parse_thread_count("16").value(), 16);
  EXPECT_EQ(parse_thread_count("1024").value(), 1024);
}

TEST(ThreadCount, RefusesEverythingElseAndNamesIt) {
  for (const char* text : {"", "0", "-3", "1025", "2.5", "4x", " 4", "four", "99999999999999999999"}) {
    const auto count = parse_thread_count(text);
    ASSERT_FALSE(count.ok()) << text;
    EXPECT_EQ(count.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(count.status().message(),
                AllOf(HasSubstr("QX_NUM_THREADS"), HasSubstr('"' + std::string(text) + '"'), HasSubstr("1 to 1024")));
  }
}

// The default is read once a process: each case runs in a process of its own.
class ThreadCountInProcess : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ThreadCountInProcess, TakesTheEnvironmentsCount) {
  EXPECT_EXIT(
      {
        setenv("QX_NUM_THREADS", "5", 1);
        std::exit(num_threads());
      },
      testing::ExitedWithCode(5), "^$");
}

TEST_F(ThreadCountInProcess, ReportsABadCountOnceAndUsesTheAvailableCpus) {
  EXPECT_EXIT(
      {
        setenv("QX_NUM_THREADS", "many", 1);
        const bool same = num_threads() == num_available_cpus() && num_threads() == num_available_cpus();
        std::exit(same ? 7 : 8);
      },
      testing::ExitedWithCode(7), "^[^\n]*QX_NUM_THREADS[^\n]*\"many\"[^\n]*\n$");
}

TEST_F(ThreadCountInProcess, DefaultsToTheAvailableCpus) {
  EXPECT_EXIT(
      {
        unsetenv("QX_NUM_THREADS");
        std::exit(num_threads() == num_available_cpus() ? 7 : 8);
      },
      testing::ExitedWithCode(7), "^$");
}

TEST(SetNumThreads, RefusesCountsOutOfRange) {
  set_num_threads(3);
  for (const int count : {-1, 1025}) {
    testing::internal::CaptureStderr();
    set_num_threads(count);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("set_num_threads"), HasSubstr("got " + std::to_string(count))));
    EXPECT_EQ(num_threads(), 3);
  }
  set_num_threads(0);
  EXPECT_EQ(num_threads(), default_thread_count());
}

}  // namespace
}  // namespace qx
