#include "quincunx/collectives/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "collectives/scripted_link.h"
#include "quincunx/collectives/call.h"
#include "quincunx/collectives/peer_channel.h"

namespace qx::collectives {
namespace {

using Bytes = std::array<std::byte, kHeaderBytes>;

Bytes encoded(const FrameHeader& header) {
  Bytes bytes;
  encode_frame_header(header, bytes);
  return bytes;
}

FrameHeader example() {
  FrameHeader header;
  header.kind = FrameKind::kCall;
  header.operation = 2;
  header.dtype = 16;
  header.reduce_op = 3;
  header.root_or_tag = -7;
  header.group = 0x0123456789abcdef;
  header.sequence = 42;
  header.count = int64_t{1} << 40;
  header.payload_bytes = 64;
  header.pre_multiplier = 0.25;
  header.num_counts = 8;
  return header;
}

TEST(Wire, HeaderSurvivesEncoding) {
  const auto decoded = decode_frame_header(encoded(example()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(encoded(*decoded), encoded(example()));
  EXPECT_EQ(decoded->count, int64_t{1} << 40);
}

TEST(Wire, FieldsOutOfRangeAreRefusedByName) {
  const auto refused = [](size_t offset, uint64_t value, size_t size, const std::string& field) {
    Bytes bytes = encoded(example());
    std::memcpy(bytes.data() + offset, &value, size);
    const auto decoded = decode_frame_header(bytes);
    ASSERT_EQ(decoded.status().code(), StatusCode::kDataLoss) << field;
    EXPECT_NE(decoded.status().message().find(field), std::string::npos) << decoded.status();
  };
  refused(0, 0, 4, "magic");
  refused(4, 2, 2, "version");
  refused(6, 0, 1, "kind");
  refused(6, static_cast<uint64_t>(kLastFrameKind) + 1, 1, "kind");
  refused(7, 11, 1, "operation");
  refused(8, 20, 1, "dtype");
  refused(9, 9, 1, "reduce_op");
  refused(10, 2, 1, "stream");
  refused(11, 12, 1, "status_code");
  refused(32, uint64_t{1} << 63, 8, "count");
  refused(40, uint64_t{1} << 40, 8, "payload_bytes");
  refused(40, ~uint64_t{0}, 8, "payload_bytes");
  refused(56, 9, 4, "num_counts");
}

// Frames of all lengths cut at every place come out as they went in.
TEST(PeerChannel, PutsFramesTogetherHoweverTheyAreCut) {
  for (size_t cut = 1; cut < 200; cut += 13) {
    ScriptedLink* link = nullptr;
    RecordingHandler handler;
    PeerChannel channel = scripted_channel(handler, link);
    std::vector<std::string> payloads;
    for (int size : {0, 1, 63, 64, 65, 1000}) {
      payloads.emplace_back(static_cast<size_t>(size), static_cast<char>('a' + size % 26));
      FrameHeader header = example();
      header.num_counts = 0;
      channel.post(header, std::as_bytes(std::span(payloads.back())));
    }
    channel.pump_out();
    const std::vector<std::byte> sent = link->take_written();
    for (size_t begin = 0; begin < sent.size(); begin += cut) {
      link->feed({sent.data() + begin, std::min(cut, sent.size() - begin)});
      ASSERT_TRUE(channel.pump().ok());
    }
    EXPECT_EQ(handler.payloads, payloads) << "pieces of " << cut;
  }
}

TEST(PeerChannel, SendsWhatWasPostedBeforeItsLink) {
  RecordingHandler handler;
  PeerChannel channel(1, handler);
  FrameHeader header = example();
  header.num_counts = 0;
  const std::string payload = "early";
  channel.post(header, std::as_bytes(std::span(payload)));
  EXPECT_FALSE(channel.has_link());
  EXPECT_TRUE(channel.has_unsent());
  channel.attach(std::make_unique<ScriptedLink>());
  auto* link = static_cast<ScriptedLink*>(channel.link());
  channel.pump_out();
  EXPECT_FALSE(channel.has_unsent());
  link->feed(link->take_written());
  ASSERT_TRUE(channel.pump().ok());
  EXPECT_EQ(handler.payloads, std::vector<std::string>{payload});
}

TEST(PeerChannel, RefusesNoise) {
  ScriptedLink* link = nullptr;
  RecordingHandler handler;
  PeerChannel channel = scripted_channel(handler, link);
  const std::vector<std::byte> noise(128, std::byte{0x5a});
  link->feed(noise);
  EXPECT_EQ(channel.pump().status().code(), StatusCode::kDataLoss);
}

TEST(Calls, AreComparedByEveryField) {
  Call a{Operation::kBroadcast, DType::kFloat32, {}, 0, 10, {}};
  Call b = a;
  const auto verdict = [&] {
    const Call* calls[] = {&a, &b};
    return compare_calls(calls);
  };
  EXPECT_TRUE(verdict().ok());
  b.count = 11;
  EXPECT_NE(verdict().message().find("differ in size: rank 0 called broadcast(float32[10], root 0), rank 1 called "
                                     "broadcast(float32[11], root 0)"),
            std::string::npos)
      << verdict();
  b = a;
  b.root = 1;
  EXPECT_NE(verdict().message().find("root"), std::string::npos);
  b = a;
  b.dtype = DType::kInt32;
  EXPECT_NE(verdict().message().find("dtype"), std::string::npos);
  b = a;
  b.operation = Operation::kBarrier;
  EXPECT_NE(verdict().message().find("operation"), std::string::npos);
}

TEST(Calls, WithWrongNumbersOfSizesAreRefused) {
  for (const auto operation : {Operation::kAllGather, Operation::kGather, Operation::kScatter, Operation::kAllToAll,
                               Operation::kReduceScatter}) {
    Call a{operation, DType::kFloat32, {}, 0, 1, {}};
    Call b{operation, DType::kFloat32, {}, 0, 1, {1, 2, 3}};
    const Call* calls[] = {&a, &b};
    EXPECT_FALSE(compare_calls(calls).ok()) << operation_name(operation);
  }
}

}  // namespace
}  // namespace qx::collectives
