#include "quincunx/collectives/algorithms/gathered_calls.h"

#include <gtest/gtest.h>

namespace qx::collectives {
namespace {

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

Call call_of(Operation operation, int64_t count, std::vector<int64_t> counts = {}, int root = -1) {
  return {operation, DType::kFloat32, {}, root, count, std::move(counts)};
}

TEST(GatheredCalls, ComeBackAsTheyWere) {
  std::vector<GatheredCall> calls;
  for (int r = 0; r < 20; ++r) {
    calls.push_back({call_of(r < 15 ? Operation::kAllReduce : Operation::kBroadcast, r == 3 ? 5 : 4),
                     {},
                     static_cast<uint32_t>(r / 4)});
    if (r % 2 == 0) calls.back().input = bytes_of({1.0f, static_cast<float>(r)});
  }
  calls.push_back({call_of(Operation::kAllToAll, 7, {3, 3, 3, 3}), {}, 0});
  calls.push_back({call_of(Operation::kAllGather, 2, {2, 0, 9}), {}, 0xffffffff});
  calls.push_back({{Operation::kReduce, DType::kBFloat16, {ReduceOp::kPreMulSum, 0.25}, 3, 8, {}}, {}, 0});
  std::vector<std::byte> text;
  encode_calls(calls, text);
  const auto decoded = decode_calls(text, static_cast<int>(calls.size()));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_TRUE((*decoded)[i].call == calls[i].call) << i;
    EXPECT_EQ((*decoded)[i].input, calls[i].input) << i;
    EXPECT_EQ((*decoded)[i].host, calls[i].host) << i;
  }
}

TEST(GatheredCalls, EqualCallsAreWrittenOnce) {
  std::vector<GatheredCall> calls(1000, {call_of(Operation::kAllToAll, 2000, std::vector<int64_t>(2000, 2)), {}, 0});
  std::vector<std::byte> text;
  encode_calls(calls, text);
  EXPECT_LT(text.size(), 2200u);
}

TEST(GatheredCalls, EveryCutAndEveryOtherNumberOfRanksIsRefused) {
  std::vector<GatheredCall> calls(3, {call_of(Operation::kAllGather, 2, {2, 4, 9}), bytes_of({1.0f, 2.0f}), 0});
  std::vector<std::byte> text;
  encode_calls(calls, text);
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(decode_calls(std::span(text).first(size), 3).status().code(), StatusCode::kDataLoss) << size;
  }
  EXPECT_FALSE(decode_calls(text, 2).ok());
  EXPECT_FALSE(decode_calls(text, 4).ok());
  // Whatever a byte becomes: an error or other calls, and nothing that is read beyond the end.
  for (size_t i = 0; i < text.size(); ++i) {
    std::vector<std::byte> damaged = text;
    damaged[i] ^= std::byte{0xff};
    static_cast<void>(decode_calls(damaged, 3));
  }
}

TEST(TreeResult, IsNotCompleteWhereAnInputIsMissing) {
  std::vector<GatheredCall> calls(3, {call_of(Operation::kAllReduce, 2), bytes_of({1.0f, 2.0f}), 0});
  EXPECT_TRUE(compute_in_tree(calls).is_complete);
  calls[1].input.clear();
  EXPECT_FALSE(compute_in_tree(calls).is_complete);
}

TEST(TreeResult, ReachesEachRankWithItsPart) {
  std::vector<GatheredCall> calls;
  for (int r = 0; r < 3; ++r) {
    const auto first = static_cast<float>(r);
    calls.push_back({call_of(Operation::kReduceScatter, r + 1, {1, 2, 3}),
                     bytes_of({first, first + 1, first + 2, first + 3, first + 4, first + 5}), 0});
  }
  const TreeResult result = compute_in_tree(calls);
  const std::vector<int> ranks = {2, 1};
  const auto part = decode_result(encode_result(result, ranks), ranks, 3);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->own[1], bytes_of({6.0f, 9.0f}));
  EXPECT_EQ(part->own[2], bytes_of({12.0f, 15.0f, 18.0f}));
  EXPECT_TRUE(part->common.empty());
  const std::vector<std::byte> text = encode_result(result, ranks);
  for (size_t size = 2; size < text.size(); ++size) {
    EXPECT_FALSE(decode_result(std::span(text).first(size), ranks, 3).ok()) << size;
  }
}

TEST(GatheredCalls, HostsComeBackAsTheyWereAndOthersAreRefused) {
  const std::vector<uint32_t> hosts = {5, 5, 5, 0, 0, 0xffffffff, 5};
  std::vector<std::byte> text = encode_hosts(hosts);
  text.push_back(std::byte{42});
  std::span<const std::byte> rest = text;
  const auto taken = take_hosts(rest, 7);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(*taken, hosts);
  EXPECT_EQ(rest.size(), 1u);
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    rest = std::span(text).first(size);
    EXPECT_FALSE(take_hosts(rest, 7).ok()) << size;
  }
  for (const int num_ranks : {6, 8}) {
    rest = text;
    EXPECT_FALSE(take_hosts(rest, num_ranks).ok());
  }
  const std::vector<std::byte> none = encode_hosts({});
  rest = none;
  EXPECT_TRUE(take_hosts(rest, 7)->empty());
}

TEST(TreeResult, ABroadcastMayBeLargerThanWhatEachRankSends) {
  EXPECT_EQ(tree_input_limit(call_of(Operation::kAllReduce, 1), 64), kTreeBytes / 64);
  EXPECT_GT(tree_input_limit(call_of(Operation::kBroadcast, 1, {}, 0), 64), kTreeBytes / 64);
}

}  // namespace
}  // namespace qx::collectives
