// Waits that end before their operation does.
#include "quincunx/collectives/interruption.h"

#include <atomic>
#include <thread>

#include "tests/collectives/ranks.h"

namespace qx::collectives {
namespace {

using namespace testing;

std::thread::id interrupted_thread;
std::atomic<int> num_answers{0};

bool interrupts_its_thread() {
  if (std::this_thread::get_id() != interrupted_thread) return false;
  ++num_answers;
  return true;
}

// Rank 0 runs in this thread, whose waits are interrupted; rank 1 comes later, in another.
class Interruption : public ::testing::Test {
 protected:
  Interruption() {
    interrupted_thread = std::this_thread::get_id();
    num_answers = 0;
    set_interrupt_check(&interrupts_its_thread);
  }
  ~Interruption() override { set_interrupt_check(nullptr); }

  std::shared_ptr<Communicator> make_rank(int rank) {
    auto group = Communicator::create(options_of({}, rank), store_);
    require_ok(group.status());
    return *group;
  }

 private:
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
};

float sum_with(Communicator& group, float value) {
  require_ok(group.all_reduce({&value, 1, DType::kFloat32}, {})->wait());
  return value;
}

TEST_F(Interruption, EndsTheWaitAndNotTheOperation) {
  const auto group = make_rank(0);
  std::vector<float> values(30'011, 1.0f);
  const WorkPtr work = group->all_reduce(buffer_of(values, DType::kFloat32), {});
  require_contains(work->wait(), StatusCode::kAborted, {"all_reduce #0", "the wait was interrupted"});
  EXPECT_FALSE(work->is_completed());
  EXPECT_GT(num_answers, 0);
  set_interrupt_check(nullptr);
  std::thread other([&] {
    const auto second = make_rank(1);
    std::vector<float> own(30'011, 2.0f);
    require_ok(second->all_reduce(buffer_of(own, DType::kFloat32), {})->wait());
    require(sum_with(*second, 4.0f) == 7.0f, "the sum of the next operation");
  });
  require_ok(work->wait());
  EXPECT_EQ(values, std::vector<float>(30'011, 3.0f));
  EXPECT_EQ(sum_with(*group, 3.0f), 7.0f);
  other.join();
}

TEST_F(Interruption, EndsTheWaitForAGroupAndNotItsConnecting) {
  const auto group = make_rank(0);
  require_contains(group->wait_ready(milliseconds(20'000)), StatusCode::kAborted, {"'default'", "interrupted"});
  EXPECT_EQ(group->progress().phase, Phase::kConnecting);
  set_interrupt_check(nullptr);
  std::thread other([&] { require_ok(make_rank(1)->wait_ready(milliseconds(20'000))); });
  require_ok(group->wait_ready(milliseconds(20'000)));
  other.join();
}

TEST_F(Interruption, AsksEachThreadThatWaits) {
  const auto group = make_rank(0);
  std::atomic<bool> entered{false};
  std::thread sibling([&] {
    const WorkPtr work = group->barrier();
    entered = true;
    require_ok(work->wait());
  });
  while (!entered) std::this_thread::yield();
  const WorkPtr work = group->barrier();
  require_contains(work->wait(), StatusCode::kAborted, {"barrier #1"});
  std::thread other([&] {
    const auto second = make_rank(1);
    require_ok(second->barrier()->wait());
    require_ok(second->barrier()->wait());
  });
  sibling.join();
  set_interrupt_check(nullptr);
  require_ok(work->wait());
  other.join();
}

}  // namespace
}  // namespace qx::collectives
