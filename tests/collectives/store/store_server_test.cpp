// What a peer that belongs to the job, but does not behave, can make a server keep.
#include "quincunx/collectives/store/store_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "collectives/security/channel_pair.h"

namespace qx::collectives {
namespace {

constexpr size_t kValueBytes = size_t{4} << 20;
constexpr int kPatienceMs = 5000;

// A connection that sends what it is told to and reads when it is told to.
class Peer {
 public:
  // `delay`: before it proves itself, as where the way there is long or the machine busy.
  explicit Peer(uint16_t port, std::chrono::milliseconds delay = {}) {
    auto socket = start_connect(*make_endpoint("127.0.0.1", port));
    QX_CHECK(socket.ok());
    socket_ = std::move(*socket);
    channel_ = testing::channel({}, {Purpose::kStore, true, 1, 0, 77, ""});
    wait_for(POLLOUT);
    while (channel_->state() == SecureChannel::State::kPending) {
      flush();
      if (!read_some()) return;
      std::this_thread::sleep_for(delay);
    }
    flush();
  }

  void send(const StoreRequest& request) { send_bytes(*encode(request)); }
  void send_bytes(std::span<const std::byte> bytes) {
    channel_->send(bytes);
    flush();
  }
  // False at the end of the stream, or where nothing comes.
  bool read_some() {
    thread_local std::byte buffer[1 << 16];
    if (!wait_for(POLLIN)) return false;
    const ssize_t count = recv(socket_.fd(), buffer, sizeof(buffer), 0);
    if (count <= 0) return false;
    channel_->receive(std::span(buffer, static_cast<size_t>(count)));
    const std::vector<std::byte> bytes = channel_->take_received();
    received_.insert(received_.end(), bytes.begin(), bytes.end());
    return true;
  }
  StoreResponse response() {
    while (true) {
      const auto size = *store_body_bytes(received_);
      if (size && received_.size() >= kStoreFrameHeaderBytes + *size) break;
      if (!read_some()) return {StatusCode::kUnavailable, "closed", 0, {}};
    }
    const auto response = *decode_store_response(std::span(received_).subspan(kStoreFrameHeaderBytes));
    received_.clear();
    return response;
  }
  size_t num_received() const { return received_.size(); }

 private:
  bool wait_for(short events) const {
    pollfd watched{socket_.fd(), events, 0};
    return poll(&watched, 1, kPatienceMs) > 0;
  }
  void flush() {
    const std::vector<std::byte> bytes = channel_->take_outgoing();
    for (size_t sent = 0; sent < bytes.size();) {
      if (!wait_for(POLLOUT)) return;
      const ssize_t count = ::send(socket_.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }

  Socket socket_;
  std::unique_ptr<SecureChannel> channel_;
  std::vector<std::byte> received_;
};

std::unique_ptr<StoreServer> start_server(std::chrono::milliseconds idle_limit = std::chrono::minutes(1),
                                          size_t max_passing = 128, size_t max_connections = 128) {
  StoreServer::Options options;
  options.addresses = {"127.0.0.1"};
  options.identity = {Purpose::kStore, false, 0, -1, 77, ""};
  options.idle_limit = idle_limit;
  options.max_passing = max_passing;
  options.max_connections = max_connections;
  auto server = StoreServer::start(std::move(options));
  QX_CHECK(server.ok());
  return std::move(*server);
}

StoreRequest request(StoreOperation operation, std::vector<std::string> keys, std::vector<std::string> values = {}) {
  StoreRequest made;
  made.operation = operation;
  made.client = 1;
  made.sequence = 1;
  made.keys = std::move(keys);
  made.values = std::move(values);
  return made;
}

TEST(StoreServer, DropsAPeerThatAsksWithoutReading) {
  const auto server = start_server();
  Peer peer(server->port());
  peer.send(request(StoreOperation::kSet, {"large"}, {std::string(kValueBytes, 'x')}));
  ASSERT_EQ(peer.response().code, StatusCode::kOk);
  constexpr size_t kRequests = 16;
  for (size_t i = 0; i < kRequests; ++i) peer.send(request(StoreOperation::kGet, {"large"}));
  // The peer reads only once it has been dropped.
  for (int i = 0; i < 20'000 && server->num_dropped() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  while (peer.read_some()) {
  }
  EXPECT_LT(peer.num_received(), kRequests / 2 * kValueBytes);  // the system keeps some of them
  EXPECT_EQ(server->num_dropped(), 1u);
}

TEST(StoreServer, WaitsForTheRestOfARequest) {
  const auto server = start_server(std::chrono::seconds(1));
  Peer peer(server->port());
  const std::vector<std::byte> frame = *encode(request(StoreOperation::kSet, {"slow"}, {"value"}));
  const size_t piece = frame.size() / 4 + 1;
  for (size_t begin = 0; begin < frame.size(); begin += piece) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    peer.send_bytes(std::span(frame).subspan(begin, std::min(piece, frame.size() - begin)));
  }
  EXPECT_EQ(peer.response().code, StatusCode::kOk);
}

TEST(StoreServer, RefusesAnAnswerThatIsTooLargeBeforeItIsMade) {
  const auto server = start_server();
  Peer peer(server->port());
  peer.send(request(StoreOperation::kSet, {"large"}, {std::string(kValueBytes, 'x')}));
  ASSERT_EQ(peer.response().code, StatusCode::kOk);
  // Copies of all of them would be 4 TiB.
  peer.send(request(StoreOperation::kGet, std::vector<std::string>(1 << 20, "large")));
  const StoreResponse response = peer.response();
  EXPECT_EQ(response.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(response.error, "values: expected at most 16777216 bytes together");
  peer.send(request(StoreOperation::kGet, {"large", "large", "large"}));
  EXPECT_EQ(peer.response().values.size(), 3u);
}

// Of those that say nothing, two at a time are taken, and each has its place for a while.
TEST(StoreServer, TakesFewAtATimeAndLetsThoseBehindIn) {
  constexpr size_t kMostPassing = 2;
  const auto server = start_server(std::chrono::minutes(1), kMostPassing);
  std::vector<Socket> silent;
  for (int i = 0; i < 20; ++i) {
    auto socket = start_connect(*make_endpoint("127.0.0.1", server->port()));
    ASSERT_TRUE(socket.ok());
    silent.push_back(std::move(*socket));
  }
  size_t most = 0;
  std::atomic<bool> stop = false;
  std::thread counter([&] {
    while (!stop) {
      most = std::max(most, server->num_connections());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  Peer peer(server->port());
  peer.send(request(StoreOperation::kSet, {"a"}, {"1"}));
  EXPECT_EQ(peer.response().code, StatusCode::kOk);
  stop = true;
  counter.join();
  EXPECT_EQ(most, kMostPassing);
}

// So many that wait for the value of "late".
std::vector<std::unique_ptr<Peer>> wait_for_late(const StoreServer& server, int num_peers) {
  std::vector<std::unique_ptr<Peer>> waiting;
  for (int i = 0; i < num_peers; ++i) {
    waiting.push_back(std::make_unique<Peer>(server.port()));
    StoreRequest wait = request(StoreOperation::kGet, {"late"});
    wait.wait_ms = kPatienceMs;
    waiting.back()->send(wait);
  }
  return waiting;
}

TEST(StoreServer, LetsOthersInBesideThoseWhoWait) {
  const auto server = start_server(std::chrono::minutes(1), 1);
  const auto waiting = wait_for_late(*server, 5);
  Peer peer(server->port());
  peer.send(request(StoreOperation::kSet, {"late"}, {"value"}));
  EXPECT_EQ(peer.response().code, StatusCode::kOk);
  for (const auto& each : waiting) EXPECT_EQ(each->response().values, std::vector<std::string>{"value"});
}

constexpr std::chrono::milliseconds kLongWay{200};

// There is always one that waits for the place of the other two, which come back when they lose it.
TEST(StoreServer, LetsThoseProveThemselvesWhoTakeLong) {
  const auto server = start_server(std::chrono::minutes(1), 1);
  const auto limit = StoreServer::Clock::now() + std::chrono::milliseconds(kPatienceMs);
  std::atomic<int> num_answered = 0;
  std::vector<std::thread> ranks;
  for (int i = 0; i < 3; ++i) {
    ranks.emplace_back([&] {
      StatusCode code = StatusCode::kUnavailable;
      while (code == StatusCode::kUnavailable && StoreServer::Clock::now() < limit) {
        Peer peer(server->port(), kLongWay);
        peer.send(request(StoreOperation::kCheck, {"a"}));
        code = peer.response().code;
      }
      if (code == StatusCode::kOk) ++num_answered;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(num_answered, 3);
}

TEST(StoreServer, MakesRoomByThoseWhoWaitNotByThoseWhoCome) {
  const auto server = start_server(std::chrono::minutes(1), 2, 4);
  const auto waiting = wait_for_late(*server, 4);
  while (server->num_connections() < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  StatusCode code = StatusCode::kUnavailable;
  std::thread slow([&] {
    Peer peer(server->port(), kLongWay);
    peer.send(request(StoreOperation::kCheck, {"a"}));
    code = peer.response().code;
  });
  std::this_thread::sleep_for(kLongWay / 2);
  Peer quick(server->port());
  quick.send(request(StoreOperation::kCheck, {"a"}));
  EXPECT_EQ(quick.response().code, StatusCode::kOk);
  slow.join();
  EXPECT_EQ(code, StatusCode::kOk);
}

TEST(StoreServer, AnswersItsOwnProcessWithoutAConnection) {
  const auto server = start_server();
  Peer peer(server->port());
  const auto soon = [] { return StoreServer::Clock::now() + std::chrono::milliseconds(5); };
  EXPECT_FALSE(server->call(request(StoreOperation::kGet, {"a"}), soon()).has_value());
  EXPECT_EQ(server->missing_keys(request(StoreOperation::kGet, {"a"})), "a");
  StoreRequest wait = request(StoreOperation::kGet, {"b"});
  wait.wait_ms = kPatienceMs;
  peer.send(wait);
  std::thread late(
      [&] { EXPECT_EQ(server->call(request(StoreOperation::kSet, {"b"}, {"2"}), soon())->code, StatusCode::kOk); });
  EXPECT_EQ(peer.response().values, std::vector<std::string>{"2"});
  late.join();
  std::thread setter([&] {
    StoreRequest set = request(StoreOperation::kSet, {"a"}, {"1"});
    set.sequence = 2;
    peer.send(set);
    EXPECT_EQ(peer.response().code, StatusCode::kOk);
  });
  const auto limit = StoreServer::Clock::now() + std::chrono::milliseconds(kPatienceMs);
  std::optional<StoreResponse> response;
  while (!response && StoreServer::Clock::now() < limit) {
    response = server->call(request(StoreOperation::kGet, {"a"}), limit);
  }
  setter.join();
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->values, std::vector<std::string>{"1"});
}

}  // namespace
}  // namespace qx::collectives
