// What ranks say to each other. Every frame is a 64-byte little-endian header and a payload padded to 64 bytes, so that
// headers and elements never straddle the end of a shared-memory ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quincunx/base/status.h"

namespace qx::collectives {

inline constexpr uint32_t kWireMagic = 0x314d5851;  // "QXM1"
inline constexpr uint16_t kWireVersion = 1;
inline constexpr int64_t kFrameAlignment = 64;
inline constexpr int kMaxRanks = 4096;
// Largest payload of a streamed frame: two of them fill a ring, so that one is written while the other is read.
inline constexpr int64_t kMaxStreamBytes = 64 << 10;
// Largest payload that a rank stores before its operation is known: counts of every rank and a small message.
inline constexpr int64_t kMaxStoredBytes = (64 << 10) + 16 * kMaxRanks;

enum class FrameKind : uint8_t {
  kHello = 1,     // first frame of a connection: rank, record and proof that the store was read
  kWelcome,       // its answer
  kCall,          // a rank has entered a collective: the call, and its data when small
  kData,          // bytes of a collective; stream 0 are inputs, stream 1 results
  kCredit,        // count: bytes of stream 0 that the receiver has reduced
  kSend,          // a small point-to-point message
  kSendRequest,   // a large one: count elements are ready
  kSendReady,     // the receive is posted
  kSendData,      // its bytes
  kSendRefused,   // the receive that it met has another size or dtype
  kFail,          // the sender's group has failed; the payload says why
  kGoodbye,       // the sender leaves in order
  kOffer,         // count bytes of a stream lie in an arena, where the receiver may read them: see offer.h
  kOfferRefused,  // it cannot: they are to be sent
  kReady,         // count: bytes of an offered stream 1 that are there
  kTaken,         // an offered stream has been read
  kCalls,         // the calls of a large group's ranks, up its tree; count: bytes of all frames together
  kVerdict,       // what the root of the tree made of them, down again; stream 1: with the results
  kProbe,         // asks how many operations of the group the receiver has entered
  kProbeAnswer,   // sequence: so many; operation: the last one; stream 1: its communicator is destroyed
};
inline constexpr FrameKind kLastFrameKind = FrameKind::kProbeAnswer;

struct FrameHeader {
  FrameKind kind = FrameKind::kData;
  uint8_t operation = 0;
  uint8_t dtype = 0;
  uint8_t reduce_op = 0;
  uint8_t stream = 0;
  uint8_t status_code = 0;
  int32_t root_or_tag = 0;  // the lane of data and of what is said about it
  uint64_t group = 0;
  uint64_t sequence = 0;
  int64_t count = 0;
  int64_t payload_bytes = 0;
  double pre_multiplier = 1.0;
  uint32_t num_counts = 0;  // int64 values at the start of a call's payload
  uint32_t host = 0;        // of the rank that calls; 0: one of its own
};

inline constexpr size_t kHeaderBytes = 64;

void encode_frame_header(const FrameHeader& header, std::span<std::byte, kHeaderBytes> out);
// kDataLoss with the field that is out of range. Nothing in the result needs to be checked again for memory safety.
Result<FrameHeader> decode_frame_header(std::span<const std::byte, kHeaderBytes> bytes);

// True for the kinds whose payload goes straight into a posted buffer.
bool is_streamed(FrameKind kind);
constexpr int64_t padded_bytes(int64_t bytes) {
  return (bytes + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment;
}

}  // namespace qx::collectives
