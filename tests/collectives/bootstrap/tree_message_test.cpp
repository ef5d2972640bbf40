#include "quincunx/collectives/bootstrap/tree_message.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "quincunx/collectives/bootstrap/tree_node.h"

namespace qx::collectives {
namespace {

constexpr int kWorldSize = 300;

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

HelloMessage hello() {
  HelloMessage message;
  message.job_id = 0x0123456789abcdef;
  message.generation = 7;
  message.world_size = kWorldSize;
  message.num_roots = 3;
  message.rank = 41;
  message.instance = ~uint64_t{0};
  message.pid = 1 << 22;
  message.role = TreeRole::kLeader;
  message.assigned = true;
  message.unreachable = 12;
  message.endpoints = {"10.0.0.1:4711", "[2001:db8::1]:4711", "@qx-job-41"};
  message.subtree = RankSet::range(41, 44);
  message.dead = {5};
  return message;
}

// One of each kind, every field set.
std::vector<TreeMessage> examples() {
  return {hello(),
          WelcomeMessage{299, true, {1, 2}},
          RedirectMessage{4, {"127.0.0.1:1"}},
          RejectMessage{false, StatusCode::kInvalidArgument, {3}, "rank 3 was started twice"},
          JoinedMessage{RankSet::range(0, 300)},
          DetachedMessage{{1, 3, 5}, {7}},
          ProgressMessage{{8, 9}, "the root is late"},
          CompleteMessage{4, "token"},
          DiedMessage{{100}, "connection reset"},
          FailedMessage{StatusCode::kDeadlineExceeded, {2}, "after 3 s"},
          ResolveMessage{1, 2, 3},
          ResolvedMessage{1, 2, 3, StatusCode::kUnavailable, bytes_of("rank 2 has died")},
          GoodbyeMessage{{6, 7}},
          SuccessorsMessage{{{1, {"10.0.0.1:1"}}, {2, {"10.0.0.2:1", "10.1.0.2:1"}}}, {0}},
          QueryMessage{1, 5, 1000, bytes_of("who")},
          AnswersMessage{1, 5, {{bytes_of("a"), {0}}, {bytes_of(""), RankSet::range(1, 90)}}}};
}

Status decoded(const std::vector<std::byte>& bytes, int world_size = kWorldSize) {
  return decode_tree_message(bytes, world_size).status();
}

TEST(TreeMessage, EveryKindSurvivesEncoding) {
  const std::vector<TreeMessage> messages = examples();
  ASSERT_EQ(messages.size(), std::variant_size_v<TreeMessage>);
  for (size_t kind = 0; kind < messages.size(); ++kind) {
    const std::vector<std::byte> bytes = encode_tree_message(messages[kind]);
    const auto message = decode_tree_message(bytes, kWorldSize);
    ASSERT_TRUE(message.ok()) << kind << ": " << message.status();
    EXPECT_EQ(message->index(), kind);
    EXPECT_EQ(encode_tree_message(*message), bytes) << kind;
  }
}

TEST(TreeMessage, HelloKeepsItsFields) {
  const auto message = decode_tree_message(encode_tree_message(hello()), kWorldSize);
  ASSERT_TRUE(message.ok()) << message.status();
  const auto& got = std::get<HelloMessage>(*message);
  EXPECT_EQ(got.job_id, 0x0123456789abcdefu);
  EXPECT_EQ(got.rank, 41);
  EXPECT_EQ(got.pid, 1 << 22);
  EXPECT_EQ(got.unreachable, 12);
  EXPECT_TRUE(got.assigned);
  EXPECT_FALSE(got.reattach);
  EXPECT_EQ(got.endpoints[1], "[2001:db8::1]:4711");
  EXPECT_EQ(got.subtree, RankSet::range(41, 44));
}

TEST(TreeMessage, RefusesBodiesThatAreCutOrTooLong) {
  for (const TreeMessage& message : examples()) {
    const std::vector<std::byte> whole = encode_tree_message(message);
    for (size_t body = 0; body + kTreeHeaderBytes < whole.size(); ++body) {
      std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(kTreeHeaderBytes + body));
      EXPECT_EQ(decoded(cut).code(), StatusCode::kDataLoss) << "the header announces more";
      cut[1] = static_cast<std::byte>(body);
      cut[2] = static_cast<std::byte>(body >> 8);
      EXPECT_EQ(decoded(cut).code(), StatusCode::kDataLoss) << message.index() << " cut to " << body;
    }
    std::vector<std::byte> longer = whole;
    longer.push_back(std::byte{0});
    longer[1] = static_cast<std::byte>(static_cast<size_t>(longer[1]) + 1);
    EXPECT_EQ(decoded(longer).code(), StatusCode::kDataLoss) << message.index();
  }
}

TEST(TreeMessage, RefusesRanksOutsideTheWorld) {
  EXPECT_EQ(decoded(encode_tree_message(WelcomeMessage{299, false, {}}), 299).code(), StatusCode::kDataLoss);
  EXPECT_EQ(decoded(encode_tree_message(JoinedMessage{{299}}), 299).code(), StatusCode::kDataLoss);
  EXPECT_EQ(decoded(encode_tree_message(ResolveMessage{0, 299, 0}), 299).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(decoded(encode_tree_message(hello()), 2).ok()) << "a hello says its own world size";
}

TEST(TreeMessage, RefusesHeadersOutOfRange) {
  std::array<std::byte, kTreeHeaderBytes> header{std::byte{16}};
  EXPECT_EQ(tree_body_bytes(header).status().code(), StatusCode::kDataLoss) << "there is no kind 16";
  header = {std::byte{1}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff}};
  EXPECT_EQ(tree_body_bytes(header).status().code(), StatusCode::kDataLoss) << "16 MiB";
  header = {std::byte{1}, std::byte{2}, std::byte{1}, std::byte{0}};
  EXPECT_EQ(*tree_body_bytes(header), 258u);
}

TEST(TreeMessage, TakesNumericAndAbstractEndpointsOnly) {
  for (const char* good : {"127.0.0.1:80", "[::1]:4711", "@x"}) EXPECT_TRUE(check_tree_endpoint(good).ok()) << good;
  for (const std::string bad : {"", "@", "localhost:80", "10.0.0.1", "10.0.0.1:", "@with space", "/tmp/socket"}) {
    EXPECT_EQ(check_tree_endpoint(bad).code(), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(check_tree_endpoint("@" + std::string(200, 'x')).ok());
  EXPECT_EQ(decoded(encode_tree_message(RedirectMessage{1, {"example.com:1"}})).code(), StatusCode::kDataLoss);
}

// Bytes that differ a little from good ones reach deepest into the parser.
TEST(TreeMessage, SurvivesBytesThatWereChanged) {
  std::mt19937 random(9);
  const std::vector<TreeMessage> messages = examples();
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = encode_tree_message(messages[random() % messages.size()]);
    const int num_changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < num_changes; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto message = decode_tree_message(bytes, kWorldSize);
    if (!message.ok()) continue;
    const std::vector<std::byte> again = encode_tree_message(*message);
    EXPECT_TRUE(decode_tree_message(again, kWorldSize).ok());
  }
}

}  // namespace
}  // namespace qx::collectives
