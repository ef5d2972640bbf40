#include "quincunx/planning/simulation/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace qx::planning {
namespace {

struct Numbered {
  int number = 0;
};

TEST(EventQueue, HandsOutEventsInOrderOfTimeAndThenOfScheduling) {
  EventQueue<Numbered> queue;
  SimulationRandom random(7);
  std::vector<std::pair<int64_t, int>> expected;
  for (int number = 0; number < 5000; ++number) {
    const auto time = static_cast<int64_t>(random.next() % 300);  // many at the same time
    queue.schedule(time, {number});
    expected.emplace_back(time, number);
  }
  std::sort(expected.begin(), expected.end());  // numbers are in the order of scheduling
  for (const auto& [time, number] : expected) {
    ASSERT_EQ(queue.next_time(), time);
    ASSERT_EQ(queue.pop().number, number);
    ASSERT_EQ(queue.now(), time);
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.num_popped(), expected.size());
}

TEST(EventQueue, TakesEventsWhileItRunsAndNeverGoesBack) {
  EventQueue<Numbered> queue;
  queue.schedule(100, {1});
  EXPECT_EQ(queue.pop().number, 1);
  queue.schedule(50, {2});  // has passed: now
  queue.schedule(100, {3});
  EXPECT_EQ(queue.pop().number, 2);
  EXPECT_EQ(queue.now(), 100);
  EXPECT_EQ(queue.pop().number, 3);
  queue.advance_to(400);
  queue.advance_to(300);
  EXPECT_EQ(queue.now(), 400);
}

TEST(SimulationRandom, IsTheSameForTheSameSeed) {
  SimulationRandom a(1), b(1), c(2);
  bool differs = false;
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const double value = a.uniform();
    EXPECT_EQ(value, b.uniform());
    differs = differs || value != c.uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  EXPECT_TRUE(differs);
  EXPECT_NEAR(sum / 1000, 0.5, 0.05);
}

}  // namespace
}  // namespace qx::planning
