// Streams through a front door, both ends on one event loop.
#include "quincunx/collectives/bootstrap/front_door.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <thread>

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;
using Clock = EventLoop::Clock;

std::string text_of(Stream::Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

class FrontDoorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::create();
    ASSERT_TRUE(loop.ok());
    loop_ = std::move(*loop);
    door_ = std::make_unique<FrontDoor>(
        *loop_,
        [this](Purpose purpose) {
          return purpose == Purpose::kLink ? std::optional(proof("known", false)) : std::nullopt;
        },
        [this](std::shared_ptr<Stream> stream) {
          Stream* raw = stream.get();
          stream->set_events({nullptr,
                              [this, raw](Stream::Bytes bytes) {
                                received_ += text_of(bytes);
                                raw->send(bytes);
                              },
                              nullptr});
          taken_.push_back(std::move(stream));
        });
    auto listener = listen_on("127.0.0.1");
    ASSERT_TRUE(listener.ok());
    endpoint_ = listener->endpoint.to_string();
    door_->add(std::move(listener->socket), true);
  }

  Proof proof(const std::string& token, bool connects, Purpose purpose = Purpose::kLink) const {
    Identity identity;
    identity.purpose = purpose;
    identity.connects = connects;
    identity.rank = connects ? 3 : 0;
    identity.job_id = 7;
    identity.token = token;
    return {credentials_, identity};
  }

  std::shared_ptr<Stream> call(const Proof& proof) {
    Stream::Events events{[this] { ++num_opened_; }, [this](Stream::Bytes bytes) { answered_ += text_of(bytes); },
                          [this](std::string_view reason) { closed_ = reason; }};
    auto stream = Stream::connect(*loop_, endpoint_, proof, std::move(events));
    EXPECT_TRUE(stream.ok());
    return *stream;
  }

  template <typename Condition>
  bool run_until(const Condition& condition) {
    const auto limit = Clock::now() + std::chrono::seconds(5);
    while (!condition() && Clock::now() < limit) {
      loop_->run_until(Clock::now() + milliseconds(5));
      if (door_->next_timer() <= Clock::now()) door_->on_timer(Clock::now());
    }
    return condition();
  }

  const std::shared_ptr<const Credentials> credentials_ = std::make_shared<const Credentials>();
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<FrontDoor> door_;
  std::string endpoint_, received_, answered_, closed_;
  std::vector<std::shared_ptr<Stream>> taken_;
  int num_opened_ = 0;
};

TEST_F(FrontDoorTest, HandsOverWhoeverProvesWhoHeIs) {
  const auto stream = call(proof("known", true));
  ASSERT_TRUE(run_until([&] { return num_opened_ == 1 && taken_.size() == 1; }));
  EXPECT_EQ(taken_[0]->peer_rank(), 3);
  EXPECT_EQ(stream->peer_rank(), 0);
  const std::string long_text(3 << 20, 'x');  // more than the socket's buffers take at once
  stream->send(std::as_bytes(std::span(long_text)));
  EXPECT_TRUE(run_until([&] { return answered_.size() == long_text.size(); }));
  EXPECT_EQ(answered_, long_text);
  EXPECT_EQ(received_, long_text);
  EXPECT_EQ(door_->num_dropped(), 0u);
}

TEST_F(FrontDoorTest, TellsTheEndOfAConnection) {
  const auto stream = call(proof("known", true));
  ASSERT_TRUE(run_until([&] { return num_opened_ == 1 && taken_.size() == 1; }));
  taken_.clear();
  EXPECT_TRUE(run_until([&] { return !closed_.empty(); }));
  EXPECT_FALSE(stream->is_open());
}

TEST_F(FrontDoorTest, DropsAndCountsAWrongToken) {
  const auto stream = call(proof("guessed", true));
  EXPECT_TRUE(run_until([&] { return door_->num_dropped() == 1 && !closed_.empty(); }));
  EXPECT_EQ(num_opened_, 0);
  EXPECT_TRUE(taken_.empty());
}

TEST_F(FrontDoorTest, DropsAndCountsAPurposeThatNobodyServes) {
  const auto stream = call(proof("known", true, Purpose::kStore));
  EXPECT_TRUE(run_until([&] { return door_->num_dropped() == 1 && !closed_.empty(); }));
  EXPECT_TRUE(taken_.empty());
}

TEST_F(FrontDoorTest, RefusesBeforeItIsOpened) {
  auto bound = bind_to("127.0.0.1");
  ASSERT_TRUE(bound.ok());
  endpoint_ = bound->endpoint.to_string();
  door_->add(std::move(bound->socket), false);
  const auto early = call(proof("known", true));
  ASSERT_TRUE(run_until([&] { return !closed_.empty(); }));
  EXPECT_NE(closed_.find("refused"), std::string::npos);
  ASSERT_TRUE(door_->open_all().ok());
  const auto stream = call(proof("known", true));
  EXPECT_TRUE(run_until([&] { return taken_.size() == 1; }));
}

TEST_F(FrontDoorTest, LeavesMostDescriptorsToTheProgram) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{400, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto endpoint = parse_endpoint(endpoint_);
  ASSERT_TRUE(endpoint.ok());
  std::vector<Socket> silent;
  for (int i = 0; i < 120; ++i) {
    auto socket = start_connect(*endpoint);
    ASSERT_TRUE(socket.ok());
    silent.push_back(std::move(*socket));
  }
  EXPECT_TRUE(run_until([&] { return door_->num_dropped() == 20; }));
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(FrontDoorTest, ATaskOfAnotherThreadRunsOnTheLoop) {
  bool done = false;
  std::thread other([&] { loop_->post([&done] { done = true; }); });
  other.join();
  EXPECT_TRUE(run_until([&] { return done; }));
}

}  // namespace
}  // namespace qx::collectives
