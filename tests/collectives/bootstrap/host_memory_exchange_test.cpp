// Ranks as exchanges on one event loop.
#include "quincunx/collectives/bootstrap/host_memory_exchange.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>

#include "quincunx/collectives/bootstrap/unix_name.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;
using Clock = EventLoop::Clock;
using Memory = Result<std::shared_ptr<HostMemory>>;

std::string fresh_name() {
  static int count = 0;
  return "@qx-exchange-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

class Exchanges {
 public:
  HostMemoryExchange& add(const std::string& name, int world_size = 4, milliseconds patience = milliseconds(2000)) {
    results_.push_back(std::make_unique<std::optional<Memory>>());
    auto* result = results_.back().get();
    exchanges_.push_back(std::make_unique<HostMemoryExchange>(
        *loop_, name, world_size, [result](Memory memory) { *result = std::move(memory); }));
    exchanges_.back()->start(Clock::now(), patience);
    return *exchanges_.back();
  }
  bool run() {
    const auto limit = Clock::now() + std::chrono::seconds(5);
    const auto is_done = [](const auto& result) { return result->has_value(); };
    while (!std::all_of(results_.begin(), results_.end(), is_done) && Clock::now() < limit) {
      loop_->run_until(Clock::now() + milliseconds(1));
      for (const auto& exchange : exchanges_) {
        if (exchange->next_timer() <= Clock::now()) exchange->on_timer(Clock::now());
      }
    }
    return std::all_of(results_.begin(), results_.end(), is_done);
  }
  const Memory& result(size_t index) const { return **results_[index]; }

 private:
  Result<std::unique_ptr<EventLoop>> created_ = EventLoop::create();
  const std::unique_ptr<EventLoop> loop_ = std::move(*created_);
  std::vector<std::unique_ptr<std::optional<Memory>>> results_;
  std::vector<std::unique_ptr<HostMemoryExchange>> exchanges_;
};

TEST(HostMemoryExchange, GivesAllTheSameMemory) {
  Exchanges exchanges;
  const std::string name = fresh_name();
  for (int rank = 0; rank < 4; ++rank) exchanges.add(name);
  ASSERT_TRUE(exchanges.run());
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(exchanges.result(static_cast<size_t>(rank)).ok());
    EXPECT_TRUE((*exchanges.result(static_cast<size_t>(rank)))->join(rank).ok());
  }
  EXPECT_EQ((*exchanges.result(0))->num_joined(), 4);
  EXPECT_TRUE((*exchanges.result(3))->has_joined(1));
}

TEST(HostMemoryExchange, KeepsNamesApartAndGivesThemBack) {
  Exchanges exchanges;
  const std::string name = fresh_name();
  exchanges.add(name).stop_serving();
  exchanges.add(name);
  exchanges.add(fresh_name());
  ASSERT_TRUE(exchanges.run());
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE((*exchanges.result(i))->join(0).ok()) << i;
}

TEST(HostMemoryExchange, RefusesTheMemoryOfAnotherWorldSize) {
  Exchanges exchanges;
  const std::string name = fresh_name();
  exchanges.add(name, 4);
  exchanges.add(name, 5);
  ASSERT_TRUE(exchanges.run());
  EXPECT_EQ(exchanges.result(1).status().code(), StatusCode::kDataLoss);
}

int num_descriptors() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

void send_two_descriptors(const Socket& socket) {
  char byte = 1;
  iovec piece{&byte, 1};
  const int descriptors[2] = {0, 0};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(descriptors));
  std::memcpy(CMSG_DATA(header), descriptors, sizeof(descriptors));
  EXPECT_EQ(sendmsg(socket.fd(), &message, MSG_NOSIGNAL), 1);
}

TEST(HostMemoryExchange, KeepsNoDescriptorThatItDidNotAskFor) {
  Exchanges exchanges;
  const std::string name = fresh_name();
  auto holder = listen_on_name(name);
  ASSERT_TRUE(holder.ok());
  const int before = num_descriptors();
  exchanges.add(name, 4, milliseconds(50));
  {
    const auto caller = accept_from(*holder);
    ASSERT_TRUE(caller.ok());
    send_two_descriptors(*caller);
  }
  ASSERT_TRUE(exchanges.run());
  EXPECT_FALSE(exchanges.result(0).ok());
  EXPECT_EQ(num_descriptors(), before);
}

TEST(HostMemoryExchange, GivesUpOnAHolderThatDoesNotAnswer) {
  Exchanges exchanges;
  const std::string name = fresh_name();
  const auto silent = listen_on_name(name);
  ASSERT_TRUE(silent.ok());
  exchanges.add(name, 4, milliseconds(50));
  ASSERT_TRUE(exchanges.run());
  EXPECT_EQ(exchanges.result(0).status().code(), StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace qx::collectives
