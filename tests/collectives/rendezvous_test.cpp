// The state machine alone: no sockets, no store, no clock but the one that the test passes in.
#include "quincunx/collectives/bootstrap/rendezvous.h"

#include <gtest/gtest.h>

namespace qx::collectives {
namespace {

using PeerPhase = Rendezvous::PeerPhase;
constexpr std::chrono::steady_clock::time_point kStart{};

PeerRecord record(int rank, int world_size, const std::string& host = "host-a") {
  PeerRecord result;
  result.rank = rank;
  result.world_size = world_size;
  result.boot_id = host;
  result.network_namespace = "net:[1]";
  result.pid = 100 + rank;
  result.endpoint = "127.0.0.1:" + std::to_string(5000 + rank);
  result.token = std::string(31, 'a') + std::to_string(rank);
  return result;
}

TEST(PeerRecord, SurvivesEncoding) {
  PeerRecord before = record(3, 8);
  before.is_external = true;
  before.segment = {103, 7, 4096, 0xffffffffffffffff};
  const auto after = PeerRecord::decode(before.encode());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->encode(), before.encode());
  EXPECT_EQ(after->segment.nonce, before.segment.nonce);
  EXPECT_EQ(after->segment.pid, 103);
}

TEST(PeerRecord, RefusesWhatIsNone) {
  const std::string letters = "qx1|a|2|h|n|1|e|0|-1|0|0|" + std::string(32, 't');
  for (const std::string& text : {std::string(), std::string("x"), std::string(100, '|'), record(0, 1).encode() + "|",
                                  record(5, 2).encode(), letters}) {
    EXPECT_EQ(PeerRecord::decode(text).status().code(), StatusCode::kDataLoss) << text;
  }
}

TEST(Rendezvous, ConnectsDownAndAcceptsFromAbove) {
  Rendezvous machine(record(1, 3));
  EXPECT_FALSE(machine.is_complete());
  ASSERT_TRUE(machine.on_record(0, record(0, 3).encode()).ok());
  ASSERT_TRUE(machine.on_record(2, record(2, 3).encode()).ok());
  const auto connects = machine.due_connects(kStart);
  ASSERT_EQ(connects.size(), 1u);
  EXPECT_EQ(connects[0].rank, 0);
  EXPECT_EQ(connects[0].endpoint, "127.0.0.1:5000");
  EXPECT_TRUE(machine.due_connects(kStart).empty());
  EXPECT_EQ(machine.phase_of(2), PeerPhase::kToAccept);
  EXPECT_TRUE(machine.store_is_done());
  machine.on_up(0);
  EXPECT_TRUE(machine.check_hello(record(2, 3), machine.own().token).ok());
  machine.on_up(2);
  EXPECT_TRUE(machine.is_complete());
}

TEST(Rendezvous, FetchesInTurnsUntilAllAreThere) {
  Rendezvous machine(record(1, 4));
  EXPECT_EQ(machine.next_fetch()->rank, 0);
  EXPECT_EQ(machine.next_fetch()->rank, 2);
  EXPECT_EQ(machine.next_fetch()->rank, 3);
  EXPECT_EQ(machine.next_fetch()->rank, 0);
  for (const int rank : {0, 2, 3}) ASSERT_TRUE(machine.on_record(rank, record(rank, 4).encode()).ok());
  EXPECT_FALSE(machine.next_fetch().has_value());
}

TEST(Rendezvous, TriesAgainLaterAndLater) {
  Rendezvous machine(record(1, 2));
  ASSERT_TRUE(machine.on_record(0, record(0, 2).encode()).ok());
  auto now = kStart;
  std::chrono::milliseconds last{0};
  for (int attempt = 0; attempt < 10; ++attempt) {
    ASSERT_EQ(machine.due_connects(now).size(), 1u) << attempt;
    machine.on_connect_failed(0, "refused", now);
    EXPECT_TRUE(machine.due_connects(now).empty());
    const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(*machine.next_attempt() - now);
    EXPECT_GE(wait, last);
    EXPECT_LE(wait, std::chrono::milliseconds(1000));
    last = wait;
    now = *machine.next_attempt();
  }
  EXPECT_EQ(machine.describe(0), "connecting to 127.0.0.1:5000: refused");
}

TEST(Rendezvous, AsksForAnotherAddressAcrossHosts) {
  Rendezvous machine(record(1, 3, "host-b"));
  ASSERT_TRUE(machine.on_record(0, record(0, 3, "host-a").encode()).ok());
  ASSERT_TRUE(machine.on_record(2, record(2, 3, "host-b").encode()).ok());
  EXPECT_TRUE(machine.due_connects(kStart).empty()) << "loopback of another host";
  EXPECT_TRUE(machine.take_publish_external());
  EXPECT_FALSE(machine.take_publish_external());
  const auto wanted = machine.next_fetch();
  ASSERT_TRUE(wanted.has_value());
  EXPECT_TRUE(wanted->external);
  EXPECT_FALSE(machine.store_is_done());
  ASSERT_TRUE(machine.on_external(0, "10.0.0.1:77").ok());
  ASSERT_EQ(machine.due_connects(kStart).size(), 1u);
  EXPECT_TRUE(machine.store_is_done());
}

TEST(Rendezvous, OneHostPublishesLoopbackOnly) {
  Rendezvous machine(record(0, 2));
  ASSERT_TRUE(machine.on_record(1, record(1, 2).encode()).ok());
  EXPECT_FALSE(machine.take_publish_external());
  EXPECT_TRUE(machine.store_is_done());
}

TEST(Rendezvous, RefusesAnotherWorldSizeAndAnotherRank) {
  Rendezvous machine(record(0, 2));
  const Status size = machine.on_record(1, record(1, 3).encode());
  EXPECT_EQ(size.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(size.message().find("rank 1 has world size 3, this rank has 2"), std::string::npos) << size;
  EXPECT_FALSE(machine.on_record(1, record(0, 2).encode()).ok());
  EXPECT_FALSE(machine.on_record(1, "nonsense").ok());
}

TEST(Rendezvous, RefusesHellosThatAreNotDue) {
  Rendezvous machine(record(1, 3));
  const std::string& token = machine.own().token;
  EXPECT_FALSE(machine.check_hello(record(2, 3), std::string(32, 'x')).ok()) << "wrong token";
  EXPECT_FALSE(machine.check_hello(record(0, 3), token).ok()) << "a rank below";
  EXPECT_FALSE(machine.check_hello(record(2, 4), token).ok()) << "another size";
  ASSERT_TRUE(machine.check_hello(record(2, 3), token).ok());
  machine.on_up(2);
  EXPECT_FALSE(machine.check_hello(record(2, 3), token).ok()) << "twice";
}

TEST(Rendezvous, SaysHowFarEachRankIs) {
  Rendezvous machine(record(1, 3));
  EXPECT_EQ(machine.describe(0), "no address published");
  machine.on_store_error("no route");
  EXPECT_EQ(machine.describe(0), "no address published; store: no route");
  ASSERT_TRUE(machine.on_record(2, record(2, 3).encode()).ok());
  EXPECT_EQ(machine.describe(2), "address published, pid 102, has not connected");
}

}  // namespace
}  // namespace qx::collectives
