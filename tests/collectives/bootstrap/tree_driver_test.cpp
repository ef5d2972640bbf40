// A job of one host whose ranks are drivers on one event loop: abstract names between them, TCP to the root.
#include "quincunx/collectives/bootstrap/tree_driver.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "quincunx/collectives/bootstrap/front_door.h"
#include "quincunx/collectives/bootstrap/unix_name.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;
using Clock = EventLoop::Clock;

class Job {
 public:
  Job(int world_size, const std::string& token_of_ranks, int num_started = kAll)
      : world_size_(world_size), token_of_ranks_(token_of_ranks) {
    static int count = 0;
    name_ = "@qx-driver-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
    auto loop = EventLoop::create();
    EXPECT_TRUE(loop.ok());
    loop_ = std::move(*loop);
    auto listener = listen_on("127.0.0.1");
    EXPECT_TRUE(listener.ok());
    endpoint_ = listener->endpoint.to_string();
    drivers_.resize(static_cast<size_t>(world_size));
    door_ = std::make_unique<FrontDoor>(
        *loop_, [this](Purpose) { return std::optional(drivers_[0]->proof(false)); },
        [this](std::shared_ptr<Stream> stream) { drivers_[0]->adopt(std::move(stream)); });
    door_->add(std::move(listener->socket), true);
    for (int rank = 0; rank < std::min(world_size, num_started); ++rank) start(rank);
  }

  // Whoever looks a root up finds the token there too.
  void start(int rank) {
    add(rank);
    if (rank == 0) driver(0).set_token("token");
    ASSERT_TRUE(driver(rank).start().ok());
  }
  const std::string& host_name() const { return name_; }
  TreeDriver& driver(int rank) { return *drivers_[static_cast<size_t>(rank)]; }
  void kill(int rank) { drivers_[static_cast<size_t>(rank)].reset(); }
  const FrontDoor& door() const { return *door_; }

  template <typename Condition>
  bool run_until(const Condition& condition) {
    const auto limit = Clock::now() + std::chrono::seconds(10);
    while (!condition() && Clock::now() < limit) {
      loop_->run_until(Clock::now() + milliseconds(1));
      for (const auto& driver : drivers_) {
        if (driver && driver->next_timer() <= Clock::now()) driver->on_timer(Clock::now());
      }
    }
    return condition();
  }

  std::set<int> ready;
  std::map<int, std::set<int>> told_dead;  // by who was told
  std::map<int, std::string> records;      // as rank 1 has resolved them

 private:
  void add(int rank) {
    TreeOptions options;
    options.rank = rank;
    options.world_size = world_size_;
    options.job_id = 5;
    options.instance = static_cast<uint64_t>(rank) + 1;
    options.pid = getpid();
    options.host_endpoint = name_;
    options.local_endpoint = name_ + "-" + std::to_string(rank);
    options.endpoints = {endpoint_};
    const std::string record = "record of " + std::to_string(rank);
    const auto bytes = std::as_bytes(std::span(record));
    options.record.assign(bytes.begin(), bytes.end());
    auto node = TreeNode::create(std::move(options));
    ASSERT_TRUE(node.ok()) << node.status().to_string();
    auto& driver = drivers_[static_cast<size_t>(rank)];
    driver = std::make_unique<TreeDriver>(*loop_, std::move(*node), std::make_shared<const Credentials>(),
                                          [this, rank](const TreeAction& action) { on_action(rank, action); });
  }

  void on_action(int rank, const TreeAction& action) {
    if (action.kind == TreeAction::Kind::kReady) ready.insert(rank);
    if (action.kind == TreeAction::Kind::kPeerDied) told_dead[rank].insert(action.rank);
    if (action.kind == TreeAction::Kind::kResolved) {
      records[action.rank] = {reinterpret_cast<const char*>(action.bytes.data()), action.bytes.size()};
    }
    if (action.kind != TreeAction::Kind::kLookUpRoot) return;
    loop_->post([this, rank, root = action.rank] {
      if (!drivers_[static_cast<size_t>(rank)]) return;
      driver(rank).set_token(token_of_ranks_);
      driver(rank).on_root_found(root, {endpoint_});
    });
  }

  static constexpr int kAll = 1 << 20;

  const int world_size_;
  const std::string token_of_ranks_;
  std::string name_, endpoint_;
  std::unique_ptr<EventLoop> loop_;
  std::vector<std::unique_ptr<TreeDriver>> drivers_;
  std::unique_ptr<FrontDoor> door_;
};

TEST(TreeDriver, BringsAHostUpAndFindsRecords) {
  Job job(30, "token");
  ASSERT_TRUE(job.run_until([&] { return job.ready.size() == 30; }));
  for (const int rank : {0, 1, 29}) job.driver(1).resolve(rank, false);
  ASSERT_TRUE(job.run_until([&] { return job.records.size() == 3; }));
  EXPECT_EQ(job.records[29], "record of 29");
  EXPECT_EQ(job.records[0], "record of 0");
  EXPECT_EQ(job.door().num_dropped(), 0u);
}

TEST(TreeDriver, TellsAllOfADeath) {
  Job job(20, "token");
  ASSERT_TRUE(job.run_until([&] { return job.ready.size() == 20; }));
  job.kill(13);
  EXPECT_TRUE(job.run_until([&] { return job.told_dead.size() == 19; }));
  for (const auto& [rank, dead] : job.told_dead) EXPECT_EQ(dead, std::set<int>{13}) << "rank " << rank;
}

// Those below it never looked the root up.
TEST(TreeDriver, AnotherLeadsTheHostOnceTheLeaderHasDiedOrLeft) {
  for (const bool dies : {true, false}) {
    Job job(9, "token");
    ASSERT_TRUE(job.run_until([&] { return job.ready.size() == 9; }));
    int leader = 1;
    while (job.driver(leader).node().statistics().depth != 1) ++leader;
    if (!dies) job.driver(leader).leave();
    job.kill(leader);
    const int asker = leader == 8 ? 7 : 8;
    ASSERT_TRUE(job.run_until([&] { return !job.driver(0).node().has_children(); }));
    ASSERT_TRUE(job.run_until([&] { return job.driver(0).node().has_children(); })) << (dies ? "died" : "left");
    job.driver(0).resolve(asker, false);
    EXPECT_TRUE(job.run_until([&] { return job.records[asker] == "record of " + std::to_string(asker); }));
    for (const auto& [rank, dead] : job.told_dead) EXPECT_EQ(dead, std::set<int>{leader}) << "rank " << rank;
  }
}

TEST(TreeDriver, ALeaveIsNoDeath) {
  Job job(6, "token");
  ASSERT_TRUE(job.run_until([&] { return job.ready.size() == 6; }));
  for (int rank = 5; rank >= 0; --rank) job.driver(rank).leave();
  EXPECT_TRUE(job.run_until([&] {
    bool drained = true;
    for (int rank = 0; rank < 6; ++rank) drained = drained && job.driver(rank).is_drained();
    return drained;
  }));
  EXPECT_TRUE(job.told_dead.empty());
}

// They hold places of the leader until others want them, and are no reason to let others in beyond its limit.
TEST(TreeDriver, SilentConnectionsKeepNobodyOut) {
  constexpr int kRanks = 30;
  Job job(kRanks, "token", 2);
  ASSERT_TRUE(job.run_until([&] { return job.driver(0).node().statistics().num_children == 1; }));
  std::vector<Socket> silent;
  for (int i = 0; i < 100; ++i) {
    auto connection = connect_to_name(job.host_name());
    ASSERT_TRUE(connection.ok()) << connection.status();
    silent.push_back(std::move(*connection));
  }
  for (int rank = 2; rank < kRanks; ++rank) job.start(rank);
  ASSERT_TRUE(job.run_until([&] { return job.ready.size() == kRanks; }));
  EXPECT_GE(job.driver(1).num_dropped(), 100u);
  EXPECT_LE(job.driver(1).node().statistics().most_connections, 5);
}

TEST(TreeDriver, LetsNobodyInWithoutTheToken) {
  Job job(3, "guessed");
  EXPECT_TRUE(job.run_until([&] { return job.door().num_dropped() > 0; }));
  EXPECT_TRUE(job.ready.empty());
}

}  // namespace
}  // namespace qx::collectives
