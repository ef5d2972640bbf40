#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "quincunx/parallel/parallel_for.h"

namespace qx {
namespace {

std::atomic<int> num_runs{0};

int five_threads() { return 5; }
int no_threads() { return 0; }

// As PyTorch does inside its own parallel regions.
void run_at_once(int64_t begin, int64_t end, int64_t, RangeFunction body) {
  ++num_runs;
  body(begin, end);
}

// The other extreme: one call an index, in reverse order.
void run_index_by_index(int64_t begin, int64_t end, int64_t, RangeFunction body) {
  ++num_runs;
  for (int64_t i = end; i-- > begin;) body(i, i + 1);
}

class ParallelBackendTest : public testing::Test {
 protected:
  void SetUp() override { num_runs = 0; }
  void TearDown() override { set_parallel_backend({}); }
};

std::vector<int> hits_over(int64_t size, int64_t grain) {
  std::vector<int> hits(static_cast<size_t>(size));
  parallel_for(0, size, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
  });
  return hits;
}

TEST_F(ParallelBackendTest, RunsTheWholeRangeHoweverTheBackendSpreadsIt) {
  for (const auto run : {&run_at_once, &run_index_by_index}) {
    set_parallel_backend({run, &five_threads});
    for (const int64_t size : {2, 5, 100, 1001}) {
      EXPECT_EQ(hits_over(size, 1), std::vector<int>(static_cast<size_t>(size), 1));
    }
  }
  EXPECT_EQ(num_runs.load(), 8);
}

TEST_F(ParallelBackendTest, SaysHowManyThreadsThereAre) {
  set_parallel_backend({&run_at_once, &five_threads});
  EXPECT_EQ(num_threads(), 5);
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 5);
  set_parallel_backend({});
  EXPECT_EQ(num_threads(), 3);
  set_num_threads(0);
}

TEST_F(ParallelBackendTest, CountsAtLeastOneThread) {
  set_parallel_backend({&run_at_once, &no_threads});
  EXPECT_EQ(num_threads(), 1);
  EXPECT_EQ(hits_over(10, 1), std::vector<int>(10, 1));
  EXPECT_EQ(num_runs.load(), 0);  // one thread needs no backend
}

TEST_F(ParallelBackendTest, LeavesSmallAndNestedLoopsToTheCaller) {
  set_parallel_backend({&run_at_once, &five_threads});
  EXPECT_EQ(hits_over(10, 10), std::vector<int>(10, 1));
  EXPECT_EQ(num_runs.load(), 0);
  parallel_for(0, 5, 1, [](int64_t, int64_t) {
    EXPECT_TRUE(in_parallel_region());
    EXPECT_EQ(hits_over(50, 1), std::vector<int>(50, 1));
  });
  EXPECT_EQ(num_runs.load(), 1);
}

TEST_F(ParallelBackendTest, CarriesExceptionsPastTheBackend) {
  set_parallel_backend({&run_index_by_index, &five_threads});
  EXPECT_THROW(parallel_for(0, 50, 1, [](int64_t, int64_t) { throw std::out_of_range("body"); }), std::out_of_range);
  EXPECT_EQ(num_runs.load(), 1);
}

TEST_F(ParallelBackendTest, RefusesHalfABackend) {
  EXPECT_DEATH(set_parallel_backend({&run_at_once, nullptr}), "both functions or none");
  EXPECT_DEATH(set_parallel_backend({nullptr, &five_threads}), "both functions or none");
}

}  // namespace
}  // namespace qx
