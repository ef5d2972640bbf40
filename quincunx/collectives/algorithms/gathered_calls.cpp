#include "quincunx/collectives/algorithms/gathered_calls.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "quincunx/collectives/bootstrap/wire_bytes.h"
#include "quincunx/kernels/reduce/reduce.h"

namespace qx::collectives {
namespace {

Status malformed() { return data_loss("gathered calls that are cut off or out of range"); }

// The sizes of a call: none, one for all, or each.
enum class Sizes : uint8_t { kNone, kUniform, kEach };

void encode_call(const Call& call, std::vector<std::byte>& out) {
  std::byte header[kHeaderBytes];
  FrameHeader fields = call.header(0, 0);
  fields.payload_bytes = 0;
  fields.num_counts = 0;
  encode_frame_header(fields, header);
  out.insert(out.end(), header, header + kHeaderBytes);
  const std::vector<int64_t>& counts = call.counts;
  const bool uniform = std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
  put_byte(out, static_cast<uint8_t>(counts.empty() ? Sizes::kNone : uniform ? Sizes::kUniform : Sizes::kEach));
  put_varint(out, counts.size());
  for (size_t i = 0; i < (uniform ? std::min<size_t>(counts.size(), 1) : counts.size()); ++i) {
    put_varint(out, static_cast<uint64_t>(counts[i]));
  }
}

Result<Call> decode_call(std::span<const std::byte>& text) {
  if (text.size() < kHeaderBytes) return malformed();
  QX_ASSIGN_OR_RETURN(const FrameHeader header, decode_frame_header(text.first<kHeaderBytes>()));
  text = text.subspan(kHeaderBytes);
  Call call = call_from_frame(header, {});
  uint8_t sizes = 0;
  size_t num_counts = 0;
  if (!take_byte(text, sizes) || sizes > static_cast<uint8_t>(Sizes::kEach)) return malformed();
  if (!take_number(text, 2 * kMaxRanks, num_counts)) return malformed();
  const auto num_written = static_cast<Sizes>(sizes) == Sizes::kUniform ? std::min<size_t>(num_counts, 1) : num_counts;
  for (size_t i = 0; i < num_written; ++i) {
    int64_t count = 0;
    if (!take_number(text, uint64_t{1} << 62, count)) return malformed();
    call.counts.push_back(count);
  }
  call.counts.resize(num_counts, call.counts.empty() ? 0 : call.counts.back());
  return call;
}

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// The sum, maximum and so on of one slice of all inputs.
std::vector<std::byte> reduce_slices(std::span<const GatheredCall> calls, size_t offset, size_t size) {
  const Call& call = calls[0].call;
  std::vector<const void*> sources;
  for (const GatheredCall& each : calls) sources.push_back(each.input.data() + offset);
  std::vector<std::byte> result(size);
  if (size == 0) return result;
  kernels::reduce(static_cast<kernels::ReduceKind>(call.reduction.op), call.dtype, sources,
                  static_cast<int64_t>(size) / dtype_size_bytes(call.dtype), result.data(),
                  call.reduction.pre_multiplier);
  return result;
}

// Where the part for rank `to` lies in the inputs of `call`.
std::pair<size_t, size_t> part_for(const Call& call, size_t to) {
  const int64_t element = dtype_size_bytes(call.dtype);
  const int64_t before =
      std::accumulate(call.counts.begin(), call.counts.begin() + static_cast<std::ptrdiff_t>(to), int64_t{0});
  return {static_cast<size_t>(before * element), static_cast<size_t>(call.counts[to] * element)};
}

}  // namespace

void encode_calls(std::span<const GatheredCall> calls, std::vector<std::byte>& out) {
  for (size_t first = 0; first < calls.size();) {
    size_t end = first + 1;
    while (end < calls.size() && calls[end].call == calls[first].call) ++end;
    put_varint(out, end - first);
    encode_call(calls[first].call, out);
    for (; first < end; ++first) {
      put_varint(out, calls[first].host);
      put_blob(out, calls[first].input);
    }
  }
}

Result<std::vector<GatheredCall>> decode_calls(std::span<const std::byte> text, int num_ranks) {
  std::vector<GatheredCall> calls;
  while (!text.empty()) {
    size_t run = 0;
    if (!take_number(text, static_cast<uint64_t>(num_ranks) - calls.size(), run) || run == 0) return malformed();
    QX_ASSIGN_OR_RETURN(const Call call, decode_call(text));
    for (; run > 0; --run) {
      calls.push_back({call, {}, 0});
      if (!take_number(text, UINT32_MAX, calls.back().host)) return malformed();
      if (!take_blob(text, kTreeBytes, calls.back().input)) return malformed();
    }
  }
  if (calls.size() != static_cast<size_t>(num_ranks)) return malformed();
  return calls;
}

int64_t input_bytes(const Call& call, int rank) {
  const int64_t element = dtype_size_bytes(call.dtype);
  const auto sum = [&](size_t num_counts) {
    return element * std::accumulate(call.counts.begin(), call.counts.begin() + static_cast<std::ptrdiff_t>(num_counts),
                                     int64_t{0});
  };
  switch (call.operation) {
    case Operation::kBarrier: return 0;
    case Operation::kBroadcast: return rank == call.root ? call.count * element : 0;
    case Operation::kScatter: return rank == call.root ? sum(call.counts.size()) : 0;
    case Operation::kReduceScatter: return sum(call.counts.size());
    case Operation::kAllToAll: return sum(call.counts.size() / 2);
    default: return call.count * element;
  }
}

int64_t tree_input_limit(const Call& call, int size) {
  const bool from_one = call.operation == Operation::kBroadcast || call.operation == Operation::kScatter;
  return from_one ? kTreeBytes / 4 : kTreeBytes / size;
}

TreeResult compute_in_tree(std::span<const GatheredCall> calls) {
  TreeResult result;
  const Call& first = calls[0].call;
  const size_t world = calls.size();
  for (size_t r = 0; r < world; ++r) {
    const int64_t expected = input_bytes(calls[r].call, static_cast<int>(r));
    if (static_cast<int64_t>(calls[r].input.size()) != expected) return result;
  }
  result.is_complete = true;
  switch (first.operation) {
    case Operation::kBroadcast: result.common = calls[static_cast<size_t>(first.root)].input; break;
    case Operation::kAllReduce: result.common = reduce_slices(calls, 0, calls[0].input.size()); break;
    case Operation::kAllGather:
      for (const GatheredCall& each : calls) append(result.common, each.input);
      break;
    case Operation::kReduce:
      result.own.resize(world);
      result.own[static_cast<size_t>(first.root)] = reduce_slices(calls, 0, calls[0].input.size());
      break;
    case Operation::kGather:
      result.own.resize(world);
      for (const GatheredCall& each : calls) append(result.own[static_cast<size_t>(first.root)], each.input);
      break;
    case Operation::kScatter:
    case Operation::kReduceScatter: {
      const GatheredCall& source = calls[first.operation == Operation::kScatter ? static_cast<size_t>(first.root) : 0];
      for (size_t r = 0; r < world; ++r) {
        const auto [offset, size] = part_for(source.call, r);
        result.own.push_back(first.operation == Operation::kReduceScatter
                                 ? reduce_slices(calls, offset, size)
                                 : std::vector(source.input.begin() + static_cast<std::ptrdiff_t>(offset),
                                               source.input.begin() + static_cast<std::ptrdiff_t>(offset + size)));
      }
      break;
    }
    case Operation::kAllToAll:
      result.own.resize(world);
      for (size_t r = 0; r < world; ++r) {
        for (const GatheredCall& each : calls) {
          const auto [offset, size] = part_for(each.call, r);
          append(result.own[r], std::span(each.input).subspan(offset, size));
        }
      }
      break;
    default: break;
  }
  return result;
}

std::vector<std::byte> encode_hosts(std::span<const uint32_t> hosts) {
  std::vector<std::byte> out;
  put_varint(out, hosts.size());
  for (size_t first = 0; first < hosts.size();) {
    size_t end = first + 1;
    while (end < hosts.size() && hosts[end] == hosts[first]) ++end;
    put_varint(out, end - first);
    put_varint(out, hosts[first]);
    first = end;
  }
  return out;
}

Result<std::vector<uint32_t>> take_hosts(std::span<const std::byte>& text, int num_ranks) {
  std::vector<uint32_t> hosts;
  size_t num_hosts = 0;
  if (!take_number(text, static_cast<uint64_t>(num_ranks), num_hosts)) return malformed();
  if (num_hosts != 0 && num_hosts != static_cast<size_t>(num_ranks)) return malformed();
  while (hosts.size() < num_hosts) {
    size_t run = 0;
    uint32_t host = 0;
    if (!take_number(text, num_hosts - hosts.size(), run) || run == 0) return malformed();
    if (!take_number(text, UINT32_MAX, host)) return malformed();
    hosts.insert(hosts.end(), run, host);
  }
  return hosts;
}

std::vector<std::byte> encode_result(const TreeResult& result, std::span<const int> ranks) {
  std::vector<std::byte> out;
  put_blob(out, result.common);
  for (const int r : ranks) {
    if (!result.own.empty()) put_blob(out, result.own[static_cast<size_t>(r)]);
  }
  return out;
}

Result<TreeResult> decode_result(std::span<const std::byte> text, std::span<const int> ranks, int num_ranks) {
  TreeResult result;
  result.is_complete = true;
  if (!take_blob(text, kMaxGatheredBytes, result.common)) return malformed();
  if (text.empty()) return result;
  result.own.resize(static_cast<size_t>(num_ranks));
  for (const int r : ranks) {
    if (!take_blob(text, kMaxGatheredBytes, result.own[static_cast<size_t>(r)])) return malformed();
  }
  if (!text.empty()) return malformed();
  return result;
}

}  // namespace qx::collectives
