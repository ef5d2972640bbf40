#include "quincunx/collectives/wire.h"

#include <bit>
#include <cstring>
#include <string>

#include "quincunx/base/dtype.h"
#include "quincunx/collectives/call.h"
#include "quincunx/collectives/communicator.h"

namespace qx::collectives {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is the memory of a little-endian machine");

template <typename T>
void put(std::span<std::byte, kHeaderBytes> out, size_t offset, T value) {
  std::memcpy(out.data() + offset, &value, sizeof(value));
}

template <typename T>
T take(std::span<const std::byte, kHeaderBytes> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

Status bad(const char* field, uint64_t value) {
  return data_loss(std::string("frame header: ") + field + " is out of range: " + std::to_string(value));
}

}  // namespace

bool is_streamed(FrameKind kind) { return kind == FrameKind::kData || kind == FrameKind::kSendData; }

void encode_frame_header(const FrameHeader& header, std::span<std::byte, kHeaderBytes> out) {
  put(out, 0, kWireMagic);
  put(out, 4, kWireVersion);
  put(out, 6, header.kind);
  put(out, 7, header.operation);
  put(out, 8, header.dtype);
  put(out, 9, header.reduce_op);
  put(out, 10, header.stream);
  put(out, 11, header.status_code);
  put(out, 12, header.root_or_tag);
  put(out, 16, header.group);
  put(out, 24, header.sequence);
  put(out, 32, header.count);
  put(out, 40, header.payload_bytes);
  put(out, 48, header.pre_multiplier);
  put(out, 56, header.num_counts);
  put(out, 60, header.host);
}

Result<FrameHeader> decode_frame_header(std::span<const std::byte, kHeaderBytes> bytes) {
  if (take<uint32_t>(bytes, 0) != kWireMagic) return bad("magic", take<uint32_t>(bytes, 0));
  if (take<uint16_t>(bytes, 4) != kWireVersion) return bad("version", take<uint16_t>(bytes, 4));
  const auto kind = take<uint8_t>(bytes, 6);
  if (kind < static_cast<uint8_t>(FrameKind::kHello) || kind > static_cast<uint8_t>(kLastFrameKind)) {
    return bad("kind", kind);
  }
  FrameHeader header;
  header.kind = static_cast<FrameKind>(kind);
  header.operation = take<uint8_t>(bytes, 7);
  header.dtype = take<uint8_t>(bytes, 8);
  header.reduce_op = take<uint8_t>(bytes, 9);
  header.stream = take<uint8_t>(bytes, 10);
  header.status_code = take<uint8_t>(bytes, 11);
  header.root_or_tag = take<int32_t>(bytes, 12);
  header.group = take<uint64_t>(bytes, 16);
  header.sequence = take<uint64_t>(bytes, 24);
  header.count = take<int64_t>(bytes, 32);
  header.payload_bytes = take<int64_t>(bytes, 40);
  header.pre_multiplier = take<double>(bytes, 48);
  header.num_counts = take<uint32_t>(bytes, 56);
  header.host = take<uint32_t>(bytes, 60);
  if (header.operation > static_cast<uint8_t>(Operation::kRecv)) return bad("operation", header.operation);
  if (header.dtype > static_cast<uint8_t>(DType::kComplex128)) return bad("dtype", header.dtype);
  if (header.reduce_op > static_cast<uint8_t>(ReduceOp::kPreMulSum)) return bad("reduce_op", header.reduce_op);
  if (header.stream > 1) return bad("stream", header.stream);
  if (header.status_code > static_cast<uint8_t>(StatusCode::kInternal)) return bad("status_code", header.status_code);
  if (header.count < 0) return bad("count", static_cast<uint64_t>(header.count));
  const int64_t limit = is_streamed(header.kind) ? kMaxStreamBytes : kMaxStoredBytes;
  if (header.payload_bytes < 0 || header.payload_bytes > limit) {
    return bad("payload_bytes", static_cast<uint64_t>(header.payload_bytes));
  }
  if (int64_t{header.num_counts} * 8 > header.payload_bytes) return bad("num_counts", header.num_counts);
  return header;
}

}  // namespace qx::collectives
