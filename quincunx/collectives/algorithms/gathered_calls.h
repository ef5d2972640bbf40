// The calls of some ranks and the inputs that came with them, as they travel up the tree of a large group; and
// what travels down again: the verdict, and the results where all inputs were there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/call.h"

namespace qx::collectives {

// All inputs of a group together, at the root of the tree: a larger collective moves its data directly.
inline constexpr int64_t kTreeBytes = 256 << 10;
// Longest text of gathered calls: the sizes of all_to_all for some thousand ranks.
inline constexpr int64_t kMaxGatheredBytes = int64_t{256} << 20;

struct GatheredCall {
  Call call;
  // All inputs of the rank, one behind the other; empty where there are none or they are too large.
  std::vector<std::byte> input;
  // As in the header of a call; 0 too once the group knows who shares a host.
  uint32_t host = 0;
};

// Appends; equal calls of neighbours are written once.
void encode_calls(std::span<const GatheredCall> calls, std::vector<std::byte>& out);
// kDataLoss unless the text holds exactly `num_ranks` calls.
Result<std::vector<GatheredCall>> decode_calls(std::span<const std::byte> text, int num_ranks);

// Bytes of the inputs that a rank has in this call.
int64_t input_bytes(const Call& call, int rank);
// What a rank may send with its call through the tree of `size` ranks.
int64_t tree_input_limit(const Call& call, int size);

// Who shares a host, as the verdict of a group's first operation brings it down: hosts[r] is that of rank r.
std::vector<std::byte> encode_hosts(std::span<const uint32_t> hosts);
// Takes it from the front of a text; none where none was sent. kDataLoss where it is not of so many ranks.
Result<std::vector<uint32_t>> take_hosts(std::span<const std::byte>& text, int num_ranks);

struct TreeResult {
  // Data is to be moved directly where neither is there.
  bool is_complete = false;
  // For every rank: the result of all_reduce and broadcast, the inputs of all_gather.
  std::vector<std::byte> common;
  // By rank, where ranks get different results.
  std::vector<std::vector<std::byte>> own;
};

// Calls of all ranks that compare_calls has found to go together. Reduces in the order of ranks.
TreeResult compute_in_tree(std::span<const GatheredCall> calls);

// The part for these ranks of a group.
std::vector<std::byte> encode_result(const TreeResult& result, std::span<const int> ranks);
// `own` holds the parts of these ranks, at their places among `num_ranks`.
Result<TreeResult> decode_result(std::span<const std::byte> text, std::span<const int> ranks, int num_ranks);

}  // namespace qx::collectives
