#include "quincunx/collectives/call.h"

#include <array>
#include <bit>
#include <cstring>

namespace qx::collectives {
namespace {

Status differ(std::span<const Call* const> calls, size_t a, size_t b, const std::string& what) {
  return invalid_argument("the ranks' calls differ in " + what + ": rank " + std::to_string(a) + " called " +
                          calls[a]->to_string() + ", rank " + std::to_string(b) + " called " + calls[b]->to_string());
}

// a's list says how much it exchanges with b; b's own count must be the same.
Status check_list_against(std::span<const Call* const> calls, size_t owner, size_t index, size_t other,
                          int64_t expected) {
  const int64_t listed = calls[owner]->counts[index];
  if (listed == expected) return ok_status();
  return differ(calls, owner, other,
                "size (rank " + std::to_string(owner) + " has " + std::to_string(listed) + " elements for rank " +
                    std::to_string(other) + ", which has " + std::to_string(expected) + ")");
}

Status compare_sizes(std::span<const Call* const> calls) {
  const size_t world = calls.size();
  const Call& first = *calls[0];
  for (size_t r = 0; r < world; ++r) {
    const size_t want = first.operation == Operation::kAllToAll ? 2 * world : calls[r]->counts.empty() ? 0 : world;
    if (calls[r]->counts.size() != want) return differ(calls, 0, r, "the number of sizes");
  }
  switch (first.operation) {
    case Operation::kBroadcast:
    case Operation::kAllReduce:
    case Operation::kReduce:
      for (size_t r = 1; r < world; ++r) {
        if (calls[r]->count != first.count) return differ(calls, 0, r, "size");
      }
      return ok_status();
    case Operation::kAllGather:
    case Operation::kReduceScatter:
      for (size_t r = 1; r < world; ++r) {
        if (calls[r]->counts != first.counts) return differ(calls, 0, r, "size");
      }
      for (size_t r = 0; r < world; ++r) {
        if (first.counts.empty()) return differ(calls, 0, r, "the number of sizes");
        QX_RETURN_IF_ERROR(check_list_against(calls, r == 0 && world > 1 ? 1 : 0, r, r, calls[r]->count));
      }
      return ok_status();
    case Operation::kGather:
    case Operation::kScatter: {
      const auto root = static_cast<size_t>(first.root);
      if (root >= world || calls[root]->counts.size() != world) return differ(calls, 0, 0, "root");
      for (size_t r = 0; r < world; ++r) {
        QX_RETURN_IF_ERROR(check_list_against(calls, root, r, r, calls[r]->count));
      }
      return ok_status();
    }
    case Operation::kAllToAll:
      for (size_t a = 0; a < world; ++a) {
        for (size_t b = 0; b < world; ++b) {
          QX_RETURN_IF_ERROR(check_list_against(calls, a, b, b, calls[b]->counts[world + a]));
        }
      }
      return ok_status();
    default: return ok_status();
  }
}

}  // namespace

std::string_view operation_name(Operation operation) {
  constexpr std::array<std::string_view, 11> kNames = {"barrier",    "broadcast", "all_reduce", "reduce",
                                                       "all_gather", "gather",    "scatter",    "reduce_scatter",
                                                       "all_to_all", "send",      "recv"};
  return kNames[static_cast<size_t>(operation)];
}

std::string_view reduce_op_name(ReduceOp op) {
  constexpr std::array<std::string_view, 9> kNames = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                                      "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
  return kNames[static_cast<size_t>(op)];
}

bool reduces(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kReduceScatter;
}

bool Call::rooted() const {
  return operation == Operation::kBroadcast || operation == Operation::kReduce || operation == Operation::kGather ||
         operation == Operation::kScatter;
}

std::string Call::to_string() const {
  std::string text(operation_name(operation));
  if (operation == Operation::kBarrier) return text + "()";
  text += "(" + std::string(dtype_name(dtype)) + "[" + std::to_string(count) + "]";
  if (!counts.empty()) {
    text += operation == Operation::kAllToAll ? ", inputs and outputs [" : ", sizes [";
    constexpr size_t kShown = 16;
    for (size_t i = 0; i < counts.size() && i < kShown; ++i) text += (i ? ", " : "") + std::to_string(counts[i]);
    text += counts.size() > kShown ? ", ...]" : "]";
  }
  if (reduces()) {
    text += ", " + std::string(reduce_op_name(reduction.op));
    if (reduction.op == ReduceOp::kPreMulSum) text += " times " + std::to_string(reduction.pre_multiplier);
  }
  if (rooted()) text += ", root " + std::to_string(root);
  if (operation == Operation::kSend || operation == Operation::kRecv) text += ", tag " + std::to_string(root);
  return text + ")";
}

FrameHeader Call::header(uint64_t group, uint64_t sequence) const {
  FrameHeader header;
  header.kind = FrameKind::kCall;
  header.operation = static_cast<uint8_t>(operation);
  header.dtype = static_cast<uint8_t>(dtype);
  header.reduce_op = static_cast<uint8_t>(reduction.op);
  header.root_or_tag = root;
  header.group = group;
  header.sequence = sequence;
  header.count = count;
  header.pre_multiplier = reduction.pre_multiplier;
  header.num_counts = static_cast<uint32_t>(counts.size());
  header.payload_bytes = static_cast<int64_t>(counts.size()) * 8;
  return header;
}

Call call_from_frame(const FrameHeader& header, std::span<const std::byte> payload) {
  Call call;
  call.operation = static_cast<Operation>(header.operation);
  call.dtype = static_cast<DType>(header.dtype);
  call.reduction = {static_cast<ReduceOp>(header.reduce_op), header.pre_multiplier};
  call.root = header.root_or_tag;
  call.count = header.count;
  call.counts.resize(header.num_counts);
  if (header.num_counts > 0) std::memcpy(call.counts.data(), payload.data(), size_t{header.num_counts} * 8);
  return call;
}

Status compare_calls(std::span<const Call* const> calls) {
  const Call& first = *calls[0];
  for (size_t r = 1; r < calls.size(); ++r) {
    const Call& call = *calls[r];
    if (call.operation != first.operation) return differ(calls, 0, r, "operation");
    if (call.operation == Operation::kBarrier) continue;
    if (call.dtype != first.dtype) return differ(calls, 0, r, "dtype");
    if (call.rooted() && call.root != first.root) return differ(calls, 0, r, "root");
    if (!call.reduces()) continue;
    if (call.reduction.op != first.reduction.op) return differ(calls, 0, r, "reduction");
    if (std::bit_cast<uint64_t>(call.reduction.pre_multiplier) !=
        std::bit_cast<uint64_t>(first.reduction.pre_multiplier)) {
      return differ(calls, 0, r, "pre_multiplier");
    }
  }
  return compare_sizes(calls);
}

}  // namespace qx::collectives
