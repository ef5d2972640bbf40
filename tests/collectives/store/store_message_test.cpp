// The messages of a network store: they survive the way, and nothing else is taken for one.
#include "quincunx/collectives/store/store_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace qx::collectives {
namespace {

std::span<const std::byte> body_of(const std::vector<std::byte>& frame) {
  return std::span(frame).subspan(kStoreFrameHeaderBytes);
}

StoreRequest sample() {
  StoreRequest request;
  request.operation = StoreOperation::kCompareSet;
  request.client = 0xfedcba9876543210;
  request.sequence = 3;
  request.number = -5;
  request.wait_ms = 1000;
  request.keys = {"key"};
  request.values = {"", std::string("\0binary\xff", 8)};
  return request;
}

TEST(StoreMessage, RequestsSurviveTheWay) {
  const StoreRequest sent = sample();
  const auto frame = encode(sent);
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(**store_body_bytes(*frame), frame->size() - kStoreFrameHeaderBytes);
  const auto received = decode_store_request(body_of(*frame));
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->operation, sent.operation);
  EXPECT_EQ(received->client, sent.client);
  EXPECT_EQ(received->sequence, sent.sequence);
  EXPECT_EQ(received->number, sent.number);
  EXPECT_EQ(received->wait_ms, sent.wait_ms);
  EXPECT_EQ(received->keys, sent.keys);
  EXPECT_EQ(received->values, sent.values);
}

TEST(StoreMessage, ResponsesSurviveTheWay) {
  const auto frame = encode(StoreResponse{StatusCode::kNotFound, "why", 7, {"a", ""}});
  const auto received = decode_store_response(body_of(*frame));
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->status().code(), StatusCode::kNotFound);
  EXPECT_EQ(received->error, "why");
  EXPECT_EQ(received->number, 7);
  EXPECT_EQ(received->values, (std::vector<std::string>{"a", ""}));
}

TEST(StoreMessage, NoPartOfAMessageIsOne) {
  const auto frame = *encode(sample());
  const auto body = body_of(frame);
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_EQ(decode_store_request(body.first(size)).status().code(), StatusCode::kDataLoss) << size;
  }
  std::vector<std::byte> longer(body.begin(), body.end());
  longer.push_back(std::byte{0});
  EXPECT_EQ(decode_store_request(longer).status().code(), StatusCode::kDataLoss);
}

TEST(StoreMessage, DamagedMessagesNeverCrashTheParser) {
  const auto frame = *encode(sample());
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> damaged(body_of(frame).begin(), body_of(frame).end());
    for (int change = 0; change < 3; ++change) damaged[random() % damaged.size()] = std::byte(random());
    const auto request = decode_store_request(damaged);
    if (request.ok()) {
      EXPECT_TRUE(encode(*request).ok());
    }
    static_cast<void>(decode_store_response(damaged));
  }
}

TEST(StoreMessage, RefusesRequestsWithoutTheirParts) {
  for (uint8_t operation = 0; operation <= static_cast<uint8_t>(kLastStoreOperation); ++operation) {
    StoreRequest request;
    request.operation = static_cast<StoreOperation>(operation);
    request.keys = {"a", "b", "c"};
    request.values = {"1", "2"};
    EXPECT_EQ(decode_store_request(body_of(*encode(request))).status().code(), StatusCode::kDataLoss) << int{operation};
  }
}

TEST(StoreMessage, BoundsItsSize) {
  StoreRequest request = sample();
  request.values[0].assign(kMaxStoreMessageBytes, 'x');
  EXPECT_EQ(encode(request).status().code(), StatusCode::kInvalidArgument);
  request = sample();
  request.keys.resize((size_t{1} << 20) + 1);
  EXPECT_EQ(encode(request).status().code(), StatusCode::kInvalidArgument);
  const uint32_t size = kMaxStoreMessageBytes + 1;
  std::vector<std::byte> header(kStoreFrameHeaderBytes);
  std::memcpy(header.data(), &size, sizeof(size));
  EXPECT_EQ(store_body_bytes(header).status().code(), StatusCode::kDataLoss);
  EXPECT_FALSE(store_body_bytes(std::span(header).first(3))->has_value());
}

}  // namespace
}  // namespace qx::collectives
