#include "quincunx/parallel/parallel_for.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "sanitizers.h"

namespace qx {
namespace {

// Restores the default number of threads, whatever a test has set.
class ParallelFor : public testing::Test {
 protected:
  // Children of death tests start afresh: a sanitizer cannot start threads in the fork of a process that has some.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override { set_num_threads(0); }
};

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

Ranges sorted_ranges(int64_t begin, int64_t end, int64_t grain) {
  std::mutex mutex;
  Ranges ranges;
  parallel_for(begin, end, grain, [&](int64_t first, int64_t last) {
    const std::lock_guard lock(mutex);
    ranges.emplace_back(first, last);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

void expect_cover(const Ranges& ranges, int64_t begin, int64_t end, int64_t grain) {
  int64_t next = begin;
  for (size_t i = 0; i < ranges.size(); ++i) {
    ASSERT_EQ(ranges[i].first, next);
    ASSERT_LT(ranges[i].first, ranges[i].second);
    if (i + 1 < ranges.size()) {
      ASSERT_GE(ranges[i].second - ranges[i].first, grain);
    }
    next = ranges[i].second;
  }
  ASSERT_EQ(next, end);
}

TEST_F(ParallelFor, CoversEveryIndexOnceForAnyThreadsSizeAndGrain) {
  for (const int threads : {1, 2, 3, 7, 16}) {
    set_num_threads(threads);
    for (const int64_t size : {1, 2, 3, 15, 16, 17, 63, 64, 1000}) {
      for (const int64_t grain : {-1, 0, 1, 2, 7, 64, 999, 1000, 5000}) {
        SCOPED_TRACE(testing::Message() << threads << " threads, size " << size << ", grain " << grain);
        expect_cover(sorted_ranges(-5, size - 5, grain), -5, size - 5, grain);
      }
    }
  }
}

TEST_F(ParallelFor, CutsTheSameWayEveryTime) {
  set_num_threads(4);
  const Ranges first = sorted_ranges(3, 1000, 10);
  EXPECT_GT(first.size(), 4u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sorted_ranges(3, 1000, 10), first);
}

TEST_F(ParallelFor, DoesNothingForAnEmptyRange) {
  for (const int threads : {1, 4}) {
    set_num_threads(threads);
    EXPECT_TRUE(sorted_ranges(5, 5, 1).empty());
    EXPECT_TRUE(sorted_ranges(5, -5, 1).empty());
  }
}

TEST_F(ParallelFor, CoversTheWholeRangeOfInt64) {
  set_num_threads(3);
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  expect_cover(sorted_ranges(kLowest, kHighest, 1), kLowest, kHighest, 1);
  EXPECT_EQ(sorted_ranges(kLowest, kHighest, kHighest).size(), 3u);
}

TEST_F(ParallelFor, UsesSeveralThreadsAtOnce) {
  set_num_threads(3);
  std::mutex mutex;
  std::condition_variable arrived;
  std::set<std::thread::id> threads;
  parallel_for(0, 12, 1, [&](int64_t, int64_t) {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    arrived.notify_all();
    arrived.wait_for(lock, std::chrono::seconds(20), [&] { return threads.size() == 3; });
  });
  EXPECT_EQ(threads.size(), 3u);
}

TEST_F(ParallelFor, NeverUsesMoreThreadsThanAsked) {
  set_num_threads(8);
  sorted_ranges(0, 1000, 1);  // eight threads exist from here on
  set_num_threads(2);
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  for (int i = 0; i < 50; ++i) {
    parallel_for(0, 64, 1, [&](int64_t, int64_t) {
      const int now = inside.fetch_add(1) + 1;
      int seen = most.load();
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      inside.fetch_sub(1);
    });
  }
  EXPECT_LE(most.load(), 2);
}

TEST_F(ParallelFor, GivesAHeldUpThreadsShareToOthers) {
  set_num_threads(2);
  std::mutex mutex;
  std::condition_variable finished;
  int others = 0;
  bool in_time = false;
  parallel_for(0, 8, 1, [&](int64_t begin, int64_t) {
    std::unique_lock lock(mutex);
    if (begin == 0) {
      in_time = finished.wait_for(lock, std::chrono::seconds(20), [&] { return others == 7; });
    } else {
      ++others;
      finished.notify_all();
    }
  });
  EXPECT_TRUE(in_time);
}

TEST_F(ParallelFor, RunsNestedCallsInline) {
  set_num_threads(4);
  std::atomic<int> inner_calls{0};
  EXPECT_FALSE(in_parallel_region());
  parallel_for(0, 16, 1, [&](int64_t, int64_t) {
    const auto thread = std::this_thread::get_id();
    EXPECT_TRUE(in_parallel_region());
    parallel_for(0, 1000, 1, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), thread);
      EXPECT_EQ(end - begin, 1000);
      ++inner_calls;
    });
    EXPECT_TRUE(in_parallel_region());
  });
  EXPECT_EQ(inner_calls.load(), 16);
  EXPECT_FALSE(in_parallel_region());
}

TEST_F(ParallelFor, IsARegionEvenOnOneThread) {
  set_num_threads(1);
  bool inside = false;
  parallel_for(0, 4, 1, [&](int64_t, int64_t) { inside = in_parallel_region(); });
  EXPECT_TRUE(inside);
  EXPECT_FALSE(in_parallel_region());
}

TEST_F(ParallelFor, RethrowsTheFailureOfTheLowestRange) {
  for (const int threads : {1, 4}) {
    set_num_threads(threads);
    try {
      parallel_for(0, 16, 1, [](int64_t begin, int64_t) { throw std::out_of_range(std::to_string(begin)); });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "0");
    }
    EXPECT_FALSE(in_parallel_region());
  }
}

TEST_F(ParallelFor, ThrowsOnlyAfterAllBodiesHaveEnded) {
  set_num_threads(4);
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> inside{0};
    EXPECT_THROW(parallel_for(0, 16, 1,
                              [&](int64_t begin, int64_t) {
                                ++inside;
                                std::this_thread::sleep_for(std::chrono::microseconds(20 * (begin % 3)));
                                --inside;
                                if (begin >= 3) throw std::runtime_error("late");
                              }),
                 std::runtime_error);
    EXPECT_EQ(inside.load(), 0);
  }
}

TEST_F(ParallelFor, WorksAfterAFailure) {
  set_num_threads(4);
  EXPECT_THROW(parallel_for(0, 64, 1, [](int64_t, int64_t) { throw 7; }), int);
  expect_cover(sorted_ranges(0, 64, 1), 0, 64, 1);
}

TEST_F(ParallelFor, PublishesWhatBodiesWrote) {
  set_num_threads(4);
  std::vector<int64_t> values(4096);
  for (int64_t round = 1; round <= 300; ++round) {
    parallel_for(0, 4096, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i;
    });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), round * 4095 * 4096 / 2);
  }
}

TEST_F(ParallelFor, ServesCallersOnSeveralThreads) {
  set_num_threads(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < 200; ++i) {
        std::vector<int> hits(97);
        parallel_for(0, 97, 1 + caller, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) ++hits[static_cast<size_t>(k)];
        });
        total += std::accumulate(hits.begin(), hits.end(), 0);
        EXPECT_EQ(*std::min_element(hits.begin(), hits.end()), 1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total.load(), 6 * 200 * 97);
}

TEST_F(ParallelFor, SurvivesChangesOfTheThreadCountMeanwhile) {
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    for (int count = 1; !stop; count = count % 9 + 1) {
      set_num_threads(count);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  for (int i = 0; i < 1000; ++i) {
    std::atomic<int64_t> sum{0};
    parallel_for(0, 100, 3, [&](int64_t begin, int64_t end) { sum += end - begin; });
    ASSERT_EQ(sum.load(), 100);
  }
  stop = true;
  changer.join();
}

TEST_F(ParallelFor, WorksInAForkedChildWhoseParentUsesThePool) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer cannot start threads in a forked child";
  set_num_threads(4);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) sorted_ranges(0, 256, 1);
  });
  for (int i = 0; i < 10; ++i) {
    expect_cover(sorted_ranges(0, 256, 1), 0, 256, 1);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // a hang ends the child
      std::atomic<int64_t> sum{0};
      for (int k = 0; k < 20; ++k) {
        parallel_for(0, 256, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
      }
      _exit(sum.load() == 20 * 256 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
  stop = true;
  busy.join();
}

TEST_F(ParallelFor, LetsAProcessExitWhileWorkersWait) {
  EXPECT_EXIT(
      {
        set_num_threads(4);
        sorted_ranges(0, 256, 1);
        exit(3);
      },
      testing::ExitedWithCode(3), "");
}

TEST_F(ParallelFor, StillRunsFromAnExitHandler) {
  EXPECT_EXIT(
      {
        set_num_threads(4);
        sorted_ranges(0, 256, 1);
        atexit([] { expect_cover(sorted_ranges(0, 256, 1), 0, 256, 1); });
        exit(4);
      },
      testing::ExitedWithCode(4), "");
}

TEST_F(ParallelFor, RunsOnDozensOfThreadsOnFewCores) {
  set_num_threads(64);
  for (int i = 0; i < 20; ++i) expect_cover(sorted_ranges(0, 10000, 1), 0, 10000, 1);
}

}  // namespace
}  // namespace qx
