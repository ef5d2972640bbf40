// The part of DirectExchange whose data travels with the calls through the tree of a large group.
#include <cstring>
#include <string>

#include "quincunx/collectives/algorithms/direct_exchange.h"

namespace qx::collectives {
namespace {

void copy_to(const Buffer& buffer, const std::byte* bytes) {
  if (buffer.count > 0) std::memcpy(buffer.data, bytes, static_cast<size_t>(buffer.size_bytes()));
}

}  // namespace

std::vector<std::byte> DirectExchange::input_for_tree() const {
  std::vector<std::byte> bytes;
  const int64_t size = input_bytes(call_, rank_);
  if (size == 0 || size > tree_input_limit(call_, world_size_)) return bytes;
  for (const Buffer& input : inputs_) {
    const auto* data = static_cast<const std::byte*>(input.data);
    if (input.count > 0) bytes.insert(bytes.end(), data, data + input.size_bytes());
  }
  return bytes;
}

Status DirectExchange::take_result(const TreeResult& result) {
  const auto own = static_cast<size_t>(rank_);
  const std::vector<std::byte>& bytes = result.own.empty() ? result.common : result.own[own];
  std::span<const Buffer> targets;
  switch (call_.operation) {
    case Operation::kBroadcast:
    case Operation::kAllReduce: targets = inputs_; break;
    case Operation::kReduce:
    case Operation::kGather:
      if (rank_ == call_.root) targets = outputs_;
      break;
    case Operation::kBarrier: break;
    default: targets = outputs_;
  }
  int64_t expected = 0;
  for (const Buffer& target : targets) expected += target.size_bytes();
  if (expected != static_cast<int64_t>(bytes.size())) {
    return data_loss("a result of " + std::to_string(bytes.size()) + " bytes, expected " + std::to_string(expected));
  }
  const std::byte* position = bytes.data();
  for (const Buffer& target : targets) {
    copy_to(target, position);
    position += target.size_bytes();
  }
  remaining_bytes_ = 0;
  return ok_status();
}

}  // namespace qx::collectives
