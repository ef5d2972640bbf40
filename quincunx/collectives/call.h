// What a rank asked for, in a form that ranks compare before any data moves.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/base/dtype.h"
#include "quincunx/base/status.h"
#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/wire.h"

namespace qx::collectives {

enum class Operation : uint8_t {
  kBarrier,
  kBroadcast,
  kAllReduce,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kSend,
  kRecv,
};

std::string_view operation_name(Operation operation);
std::string_view reduce_op_name(ReduceOp op);

// Whether contributions are combined.
bool reduces(Operation operation);

struct Call {
  Operation operation = Operation::kBarrier;
  DType dtype = DType::kUInt8;
  Reduction reduction;
  int root = -1;  // the tag of a send or receive
  // Elements of the buffer that every rank has: the input of broadcast, all_reduce, reduce, all_gather and gather, the
  // output of scatter and reduce_scatter, all inputs of all_to_all.
  int64_t count = 0;
  // Per rank: outputs of all_gather and of gather's root, inputs of reduce_scatter and of scatter's root; inputs and
  // then outputs of all_to_all.
  std::vector<int64_t> counts;

  bool operator==(const Call& other) const = default;
  bool reduces() const { return collectives::reduces(operation); }
  bool rooted() const;
  // "all_reduce(float32[10], SUM)"
  std::string to_string() const;
  FrameHeader header(uint64_t group, uint64_t sequence) const;
};

// The call of a frame whose kind is kCall; the counts are the first num_counts values of the payload.
Call call_from_frame(const FrameHeader& header, std::span<const std::byte> payload);

// Ok where calls[r], one for each rank in order, go together; else the first pair of ranks that differ and both calls.
// A function of its argument alone: every rank comes to the same verdict.
Status compare_calls(std::span<const Call* const> calls);

}  // namespace qx::collectives
