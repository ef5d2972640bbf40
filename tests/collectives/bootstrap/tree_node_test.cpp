#include "quincunx/collectives/bootstrap/tree_node.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "quincunx/collectives/bootstrap/tree_message.h"

namespace qx::collectives {
namespace {

using std::chrono::milliseconds;
using Kind = TreeAction::Kind;

TreeOptions options_of(int rank, int world_size) {
  TreeOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.job_id = 5;
  options.generation = 2;
  options.instance = 100 + static_cast<uint64_t>(rank);
  options.pid = 7000 + rank;
  options.host_endpoint = "@host";
  options.local_endpoint = "@rank-" + std::to_string(rank);
  options.endpoints = {"10.0.0." + std::to_string(rank) + ":1"};
  options.timeout = milliseconds(5000);
  return options;
}

// A node and what it has wanted so far.
struct Driven {
  explicit Driven(TreeOptions options) {
    auto made = TreeNode::create(std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    node = std::move(*made);
    node->start(now);
  }
  std::vector<TreeAction> take() {
    std::vector<TreeAction> actions;
    while (auto action = node->take_action()) actions.push_back(std::move(*action));
    return actions;
  }
  // The first action of a kind that the node wants now; the others are dropped.
  TreeAction expect(Kind kind) {
    for (TreeAction& action : take()) {
      if (action.kind == kind) return std::move(action);
    }
    ADD_FAILURE() << "no action of kind " << static_cast<int>(kind);
    return {};
  }
  TreeConnection accept_hello(const HelloMessage& hello) {
    const TreeConnection connection = node->on_accepted(now);
    node->on_bytes(connection, encode_tree_message(hello), now);
    return connection;
  }
  std::unique_ptr<TreeNode> node;
  TreeNode::Time now{std::chrono::hours(1)};
};

HelloMessage hello_of(int rank, int world_size) {
  HelloMessage hello;
  hello.job_id = 5;
  hello.generation = 2;
  hello.world_size = world_size;
  hello.rank = rank;
  hello.instance = 100 + static_cast<uint64_t>(rank);
  hello.pid = 7000 + rank;
  hello.role = TreeRole::kLeader;
  hello.endpoints = {"10.0.0." + std::to_string(rank) + ":1"};
  hello.subtree = {rank};
  return hello;
}

RejectMessage rejection_in(const std::vector<TreeAction>& actions, int world_size) {
  for (const TreeAction& action : actions) {
    if (action.kind != Kind::kSend) continue;
    const auto message = decode_tree_message(action.bytes, world_size);
    if (message.ok() && std::holds_alternative<RejectMessage>(*message)) return std::get<RejectMessage>(*message);
  }
  ADD_FAILURE() << "nobody was turned away";
  return {};
}

TEST(TreeNode, AloneIsReadyAtOnce) {
  Driven alone(options_of(0, 1));
  EXPECT_TRUE(alone.node->is_ready());
  EXPECT_EQ(alone.take().size(), 1u);
  EXPECT_EQ(alone.node->next_timer(), TreeNode::Time::max());
}

TEST(TreeNode, RefusesOptionsThatAreWrongByName) {
  const auto refused = [](auto change, const std::string& name) {
    TreeOptions options = options_of(1, 4);
    change(options);
    const auto node = TreeNode::create(options);
    ASSERT_EQ(node.status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_NE(node.status().message().find(name), std::string::npos) << node.status();
  };
  refused([](TreeOptions& o) { o.rank = 4; }, "rank is 4");
  refused([](TreeOptions& o) { o.rank = -1; }, "rank is -1");
  refused([](TreeOptions& o) { o.world_size = 0; }, "world_size is 0");
  refused([](TreeOptions& o) { o.num_roots = 5; }, "num_roots is 5");
  refused([](TreeOptions& o) { o.record.resize(kMaxTreeRecordBytes + 1); }, "record");
  refused([](TreeOptions& o) { o.endpoints = {"example.com:1"}; }, "endpoints");
  refused([](TreeOptions& o) { o.endpoints = {"@local"}; }, "@local");
  refused([](TreeOptions& o) { o.host_endpoint = ""; }, "host_endpoint");
  refused([](TreeOptions& o) { o.pid = -1; }, "pid");
}

TEST(TreeNode, RootsAreSpreadOverTheRanks) {
  EXPECT_EQ(default_num_roots(1), 1);
  EXPECT_EQ(default_num_roots(128), 1);
  EXPECT_EQ(default_num_roots(129), 2);
  for (int world_size : {1, 2, 10, 4096}) {
    for (int num_roots = 1; num_roots <= std::min(world_size, 40); ++num_roots) {
      EXPECT_EQ(root_rank(0, world_size, num_roots), 0);
      for (int root = 1; root < num_roots; ++root) {
        EXPECT_LT(root_rank(root - 1, world_size, num_roots), root_rank(root, world_size, num_roots));
      }
      EXPECT_LT(root_rank(num_roots - 1, world_size, num_roots), world_size);
    }
  }
}

// The loser of the election asks the leader, is sent to a parent, and is ready when that one says so.
TEST(TreeNode, FindsItsParentInTwoConnects) {
  Driven rank(options_of(3, 8));
  EXPECT_EQ(rank.expect(Kind::kBindHost).endpoint, "@host");
  rank.node->on_host_bound(false, rank.now);
  const TreeAction first = rank.expect(Kind::kConnect);
  EXPECT_EQ(first.endpoint, "@host");
  rank.node->on_connected(first.connection, rank.now);
  const auto hello = decode_tree_message(rank.expect(Kind::kSend).bytes, 8);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(std::get<HelloMessage>(*hello).endpoints, Endpoints{"@rank-3"});
  EXPECT_FALSE(std::get<HelloMessage>(*hello).assigned);

  rank.node->on_bytes(first.connection, encode_tree_message(RedirectMessage{5, {"@rank-5"}}), rank.now);
  const auto actions = rank.take();
  ASSERT_EQ(actions.size(), 2u);
  EXPECT_EQ(actions[0].kind, Kind::kClose);
  ASSERT_EQ(actions[1].kind, Kind::kConnect);
  EXPECT_EQ(actions[1].endpoint, "@rank-5");
  rank.node->on_connected(actions[1].connection, rank.now);
  const auto second = decode_tree_message(rank.expect(Kind::kSend).bytes, 8);
  EXPECT_TRUE(std::get<HelloMessage>(*second).assigned);
  rank.node->on_bytes(actions[1].connection, encode_tree_message(WelcomeMessage{5, false, {}}), rank.now);
  rank.node->on_bytes(actions[1].connection, encode_tree_message(CompleteMessage{2, "token"}), rank.now);
  rank.expect(Kind::kReady);
  EXPECT_EQ(rank.node->token(), "token");
  EXPECT_EQ(rank.node->statistics().depth, 3);
}

TEST(TreeNode, TriesEveryAddressOfARootAndThenAgain) {
  Driven rank(options_of(3, 8));
  rank.node->on_host_bound(true, rank.now);
  EXPECT_EQ(rank.expect(Kind::kLookUpRoot).rank, 0);
  rank.node->on_root_found(0, {"10.0.0.9:1", "[fd00::9]:1"}, rank.now);
  TreeAction connect = rank.expect(Kind::kConnect);
  EXPECT_EQ(connect.endpoint, "10.0.0.9:1");
  rank.now += milliseconds(300);  // it swallows packets
  rank.node->on_timer(rank.now);
  connect = rank.expect(Kind::kConnect);
  EXPECT_EQ(connect.endpoint, "[fd00::9]:1");
  rank.node->on_closed(connect.connection, "no route to host", rank.now);
  EXPECT_TRUE(rank.take().empty());
  EXPECT_NE(rank.node->progress().text.find("no route to host"), std::string::npos) << rank.node->progress().text;
  EXPECT_EQ(rank.node->progress().missing, RankSet{0});
  rank.now += milliseconds(10);
  rank.node->on_timer(rank.now);
  EXPECT_EQ(rank.expect(Kind::kConnect).endpoint, "10.0.0.9:1");
}

TEST(TreeNode, TurnsAwayOtherJobsAndGenerationsAndGoesOn) {
  Driven root(options_of(0, 4));
  HelloMessage hello = hello_of(1, 4);
  hello.job_id = 6;
  root.accept_hello(hello);
  EXPECT_NE(rejection_in(root.take(), 4).text.find("another job"), std::string::npos);
  hello = hello_of(1, 4);
  hello.generation = 1;
  root.accept_hello(hello);
  const RejectMessage rejection = rejection_in(root.take(), 4);
  EXPECT_TRUE(rejection.final);
  EXPECT_NE(rejection.text.find("generation 1"), std::string::npos) << rejection.text;
  EXPECT_NE(root.node->progress().phase, TreeProgress::Phase::kFailed);
  EXPECT_EQ(root.node->statistics().num_dropped, 2u);
}

TEST(TreeNode, AnotherWorldSizeEndsTheJobAndNamesBoth) {
  Driven root(options_of(0, 4));
  root.accept_hello(hello_of(1, 5));
  const TreeAction failed = root.expect(Kind::kFailed);
  EXPECT_EQ(failed.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(failed.ranks, (RankSet{0, 1}));
  EXPECT_EQ(failed.status.message(), "rank 1 was started with world size 5, rank 0 with 4");
}

TEST(TreeNode, ARankThatIsStartedTwiceEndsTheJob) {
  Driven root(options_of(0, 4));
  root.accept_hello(hello_of(2, 4));
  HelloMessage second = hello_of(2, 4);
  second.instance = 999;
  second.pid = 12;
  root.take();
  root.accept_hello(second);
  const TreeAction failed = root.expect(Kind::kFailed);
  EXPECT_EQ(failed.ranks, RankSet{2});
  EXPECT_EQ(failed.status.message(), "rank 2 was started twice: process 12 and process 7002");
  // A rank that comes later learns why.
  root.accept_hello(hello_of(3, 4));
  EXPECT_EQ(rejection_in(root.take(), 4).text, failed.status.message());
}

TEST(TreeNode, TheSameProcessMayAskAgain) {
  Driven root(options_of(0, 3));
  const TreeConnection first = root.accept_hello(hello_of(2, 3));
  root.node->on_bytes(first, encode_tree_message(JoinedMessage{}), root.now);
  root.take();
  const TreeConnection second = root.accept_hello(hello_of(2, 3));  // the first is half open
  EXPECT_EQ(root.expect(Kind::kClose).connection, first);
  root.node->on_bytes(second, encode_tree_message(JoinedMessage{}), root.now);
  EXPECT_EQ(root.node->progress().missing, RankSet{1});
  EXPECT_TRUE(root.node->dead().empty());
}

TEST(TreeNode, WhoeverLeavesBeforeAllAreThereWasThere) {
  Driven root(options_of(0, 4));
  const TreeConnection child = root.accept_hello(hello_of(1, 4));
  root.node->on_bytes(child, encode_tree_message(JoinedMessage{{3}}), root.now);
  root.node->on_bytes(child, encode_tree_message(DetachedMessage{{}, {3}}), root.now);
  EXPECT_EQ(root.node->progress().missing, RankSet{2});
  root.node->on_bytes(child, encode_tree_message(GoodbyeMessage{{}}), root.now);
  EXPECT_EQ(root.node->progress().missing, RankSet{2});
  root.take();
  const TreeConnection last = root.accept_hello(hello_of(2, 4));
  root.node->on_bytes(last, encode_tree_message(JoinedMessage{}), root.now);
  root.expect(Kind::kReady);
}

// Deaths are gathered for a moment: one that a neighbour tells of must not keep those that it does not know from it.
TEST(TreeNode, TellsOfEveryDeathWhomeverItWasHeardFrom) {
  Driven root(options_of(0, 7));
  std::vector<TreeConnection> children;
  for (int rank = 1; rank <= 3; ++rank) {
    children.push_back(root.accept_hello(hello_of(rank, 7)));
    root.node->on_bytes(children.back(), encode_tree_message(JoinedMessage{{rank + 3}}), root.now);
  }
  std::map<TreeConnection, RankSet> told;
  const auto note_told = [&] {
    for (const TreeAction& action : root.take()) {
      const auto message = decode_tree_message(action.bytes, 7);
      if (action.kind != Kind::kSend || !message.ok() || !std::holds_alternative<DiedMessage>(*message)) continue;
      told[action.connection] |= std::get<DiedMessage>(*message).ranks;
    }
  };
  root.node->on_bytes(children[0], encode_tree_message(DiedMessage{{4}, "gone"}), root.now);
  root.now += milliseconds(2);
  root.node->on_bytes(children[1], encode_tree_message(DiedMessage{{5}, "gone"}), root.now);
  root.now += milliseconds(3);
  root.node->on_bytes(children[2], encode_tree_message(DiedMessage{{6}, "gone"}), root.now);
  note_told();
  root.now += milliseconds(5);
  root.node->on_timer(root.now);
  note_told();
  EXPECT_TRUE((told[children[0]].contains(5) && told[children[0]].contains(6))) << told[children[0]].to_string();
  EXPECT_TRUE((told[children[1]].contains(4) && told[children[1]].contains(6))) << told[children[1]].to_string();
  EXPECT_TRUE((told[children[2]].contains(4) && told[children[2]].contains(5))) << told[children[2]].to_string();
}

TEST(TreeNode, TheDeadlineNamesTheMissing) {
  Driven root(options_of(0, 6));
  for (int rank : {1, 4}) {
    const TreeConnection child = root.accept_hello(hello_of(rank, 6));
    root.node->on_bytes(child, encode_tree_message(JoinedMessage{}), root.now);
  }
  root.take();
  root.now += milliseconds(4999);
  root.node->on_timer(root.now);
  EXPECT_NE(root.node->progress().phase, TreeProgress::Phase::kFailed);
  root.now += milliseconds(1);
  EXPECT_LE(root.node->next_timer(), root.now);
  root.node->on_timer(root.now);
  const TreeAction failed = root.expect(Kind::kFailed);
  EXPECT_EQ(failed.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(failed.ranks, (RankSet{2, 3, 5}));
  EXPECT_EQ(failed.status.message(), "after 5.0 s ranks 2-3, 5 of 6 are missing");
}

TEST(TreeNode, DropsStrangersThatAreSilentOrSpeakAnotherProtocol) {
  Driven root(options_of(0, 4));
  const TreeConnection silent = root.node->on_accepted(root.now);
  const TreeConnection noisy = root.node->on_accepted(root.now);
  const std::string request = "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n";
  root.node->on_bytes(noisy, std::as_bytes(std::span(request)), root.now);
  EXPECT_EQ(root.expect(Kind::kClose).connection, noisy);
  root.now += std::chrono::seconds(4);
  root.node->on_timer(root.now);
  root.take();
  root.now += std::chrono::seconds(10);
  root.node->on_timer(root.now);
  EXPECT_EQ(root.expect(Kind::kClose).connection, silent);
  EXPECT_EQ(root.node->statistics().num_dropped, 2u);
}

TEST(TreeNode, TakesMessagesCutAtEveryPlace) {
  for (size_t cut = 1; cut < 40; ++cut) {
    Driven root(options_of(0, 2));
    const TreeConnection child = root.node->on_accepted(root.now);
    std::vector<std::byte> bytes = encode_tree_message(hello_of(1, 2));
    const std::vector<std::byte> more = encode_tree_message(JoinedMessage{});
    bytes.insert(bytes.end(), more.begin(), more.end());
    for (size_t begin = 0; begin < bytes.size(); begin += cut) {
      root.node->on_bytes(child, std::span(bytes).subspan(begin, std::min(cut, bytes.size() - begin)), root.now);
    }
    EXPECT_TRUE(root.node->is_ready()) << "pieces of " << cut;
  }
}

TEST(TreeNode, AChildThatSpeaksNonsenseIsGivenUp) {
  Driven root(options_of(0, 2));
  const TreeConnection child = root.accept_hello(hello_of(1, 2));
  root.node->on_bytes(child, encode_tree_message(JoinedMessage{}), root.now);
  root.expect(Kind::kReady);
  root.node->on_bytes(child, encode_tree_message(CompleteMessage{0, ""}), root.now);  // what only parents say
  EXPECT_EQ(root.expect(Kind::kPeerDied).rank, 1);
}

TEST(TreeNode, SurvivesRandomCallsAndBytes) {
  std::mt19937 random(17);
  for (int round = 0; round < 300; ++round) {
    Driven node(options_of(static_cast<int>(random() % 2) * 3, 8));
    std::vector<TreeConnection> known;
    for (int step = 0; step < 60; ++step) {
      for (const TreeAction& action : node.take()) {
        if (action.kind == Kind::kConnect) known.push_back(action.connection);
      }
      const TreeConnection any = known.empty() ? 1 : known[random() % known.size()];
      const std::vector<TreeMessage> messages = {hello_of(static_cast<int>(random() % 8), 8),
                                                 WelcomeMessage{1, random() % 2 == 0, {2}},
                                                 RedirectMessage{static_cast<int>(random() % 8), {"10.0.0.1:1"}},
                                                 JoinedMessage{{static_cast<int>(random() % 8)}},
                                                 DetachedMessage{{1}, {2}},
                                                 CompleteMessage{1, ""},
                                                 DiedMessage{{static_cast<int>(random() % 8)}, "x"},
                                                 ResolveMessage{1, static_cast<int>(random() % 8), 0},
                                                 GoodbyeMessage{{}},
                                                 QueryMessage{1, 1, 5, {}},
                                                 AnswersMessage{1, 1, {{{}, {3}}}}};
      switch (random() % 8) {
        case 0: known.push_back(node.node->on_accepted(node.now)); break;
        case 1: node.node->on_connected(any, node.now); break;
        case 2: node.node->on_closed(any, "closed", node.now); break;
        case 3: node.node->on_host_bound(random() % 2 == 0, node.now); break;
        case 4: node.node->on_root_found(0, {"10.0.0.1:1"}, node.now); break;
        case 5:
          node.now += milliseconds(random() % 700);
          node.node->on_timer(node.now);
          break;
        default: {
          std::vector<std::byte> bytes = encode_tree_message(messages[random() % messages.size()]);
          if (random() % 10 == 0) bytes[random() % bytes.size()] ^= std::byte{0x11};
          node.node->on_bytes(any, bytes, node.now);
        }
      }
    }
    node.node->leave(node.now);
    EXPECT_EQ(node.node->next_timer(), TreeNode::Time::max());
  }
}

}  // namespace
}  // namespace qx::collectives
