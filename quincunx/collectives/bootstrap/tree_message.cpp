#include "quincunx/collectives/bootstrap/tree_message.h"

#include <algorithm>
#include <utility>

#include "quincunx/collectives/bootstrap/tree_node.h"
#include "quincunx/collectives/bootstrap/wire_bytes.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives {
namespace {

constexpr uint64_t kHelloMagic = 0x3145455254785151;  // "QQxTREE1"
constexpr size_t kMaxSuccessors = 8;
constexpr uint64_t kMaxPatienceMs = 24 * 3600 * 1000;
constexpr auto kLastCode = static_cast<uint64_t>(StatusCode::kInternal);

using Out = std::vector<std::byte>;
using In = std::span<const std::byte>;

void put_endpoints(Out& out, const Endpoints& endpoints) {
  put_varint(out, endpoints.size());
  for (const std::string& endpoint : endpoints) put_text(out, endpoint);
}

bool take_endpoints(In& in, Endpoints& endpoints) {
  size_t count = 0;
  if (!take_number(in, kMaxEndpoints, count)) return false;
  endpoints.resize(count);
  return std::all_of(endpoints.begin(), endpoints.end(), [&](std::string& endpoint) {
    return take_text(in, kMaxEndpointBytes, endpoint) && check_tree_endpoint(endpoint).ok();
  });
}

bool take_set(In& in, int world_size, RankSet& set) {
  auto taken = RankSet::decode(in, world_size);
  if (!taken.ok()) return false;
  set = std::move(*taken);
  return true;
}

bool take_rank(In& in, int world_size, int& rank) {
  return take_number(in, static_cast<uint64_t>(world_size - 1), rank);
}

// A rank, or -1.
void put_optional_rank(Out& out, int rank) { put_varint(out, static_cast<uint64_t>(int64_t{rank} + 1)); }

bool take_optional_rank(In& in, int world_size, int& rank) {
  if (!take_number(in, static_cast<uint64_t>(world_size), rank)) return false;
  --rank;
  return true;
}

bool take_code(In& in, StatusCode& code) { return take_number(in, kLastCode, code); }

bool take_flag(In& in, bool& flag) { return take_number(in, 1, flag); }

void put(Out& out, const HelloMessage& m) {
  put_u64(out, kHelloMagic);
  put_u64(out, m.job_id);
  put_varint(out, m.generation);
  put_u64(out, m.instance);
  put_varint(out, static_cast<uint64_t>(m.world_size));
  put_varint(out, static_cast<uint64_t>(m.num_roots));
  put_varint(out, static_cast<uint64_t>(m.rank));
  put_varint(out, static_cast<uint64_t>(m.pid));
  put_byte(out, static_cast<uint8_t>(m.role));
  put_byte(out, m.assigned);
  put_byte(out, m.reattach);
  put_optional_rank(out, m.unreachable);
  put_endpoints(out, m.endpoints);
  m.subtree.encode(out);
  m.dead.encode(out);
}

bool take(In& in, int, HelloMessage& m) {
  uint64_t magic = 0;
  if (!take_u64(in, magic) || magic != kHelloMagic) return false;
  if (!take_u64(in, m.job_id) || !take_varint(in, m.generation) || !take_u64(in, m.instance)) return false;
  if (!take_number(in, kMaxTreeWorldSize, m.world_size) || m.world_size < 1) return false;
  const auto world_size = static_cast<uint64_t>(m.world_size);
  if (!take_number(in, world_size, m.num_roots) || m.num_roots < 1) return false;
  return take_rank(in, m.world_size, m.rank) && take_number(in, uint64_t{1} << 32, m.pid) &&
         take_number(in, static_cast<uint64_t>(TreeRole::kLocal), m.role) && take_flag(in, m.assigned) &&
         take_flag(in, m.reattach) && take_optional_rank(in, m.world_size, m.unreachable) &&
         take_endpoints(in, m.endpoints) && take_set(in, m.world_size, m.subtree) &&
         take_set(in, m.world_size, m.dead) && m.subtree.contains(m.rank);
}

void put(Out& out, const WelcomeMessage& m) {
  put_varint(out, static_cast<uint64_t>(m.rank));
  put_byte(out, m.complete);
  m.dead.encode(out);
}

bool take(In& in, int world_size, WelcomeMessage& m) {
  return take_rank(in, world_size, m.rank) && take_flag(in, m.complete) && take_set(in, world_size, m.dead);
}

void put(Out& out, const RedirectMessage& m) {
  put_varint(out, static_cast<uint64_t>(m.rank));
  put_endpoints(out, m.endpoints);
}

bool take(In& in, int world_size, RedirectMessage& m) {
  return take_rank(in, world_size, m.rank) && take_endpoints(in, m.endpoints) && !m.endpoints.empty();
}

void put(Out& out, const RejectMessage& m) {
  put_byte(out, m.final);
  put_byte(out, static_cast<uint8_t>(m.code));
  m.ranks.encode(out);
  put_text(out, m.text);
}

bool take(In& in, int world_size, RejectMessage& m) {
  return take_flag(in, m.final) && take_code(in, m.code) && m.code != StatusCode::kOk &&
         take_set(in, world_size, m.ranks) && take_text(in, kMaxTextBytes, m.text);
}

void put(Out& out, const JoinedMessage& m) { m.ranks.encode(out); }
bool take(In& in, int world_size, JoinedMessage& m) { return take_set(in, world_size, m.ranks); }

void put(Out& out, const DetachedMessage& m) {
  m.moved.encode(out);
  m.left.encode(out);
}

bool take(In& in, int world_size, DetachedMessage& m) {
  return take_set(in, world_size, m.moved) && take_set(in, world_size, m.left);
}

void put(Out& out, const ProgressMessage& m) {
  m.missing.encode(out);
  put_text(out, m.text);
}

bool take(In& in, int world_size, ProgressMessage& m) {
  return take_set(in, world_size, m.missing) && take_text(in, kMaxTextBytes, m.text);
}

void put(Out& out, const CompleteMessage& m) {
  put_varint(out, static_cast<uint64_t>(m.depth));
  put_text(out, m.token);
}

bool take(In& in, int world_size, CompleteMessage& m) {
  return take_rank(in, world_size, m.depth) && take_text(in, kMaxTreeTokenBytes, m.token);
}

void put(Out& out, const DiedMessage& m) {
  m.ranks.encode(out);
  put_text(out, m.text);
}

bool take(In& in, int world_size, DiedMessage& m) {
  return take_set(in, world_size, m.ranks) && take_text(in, kMaxTextBytes, m.text);
}

void put(Out& out, const FailedMessage& m) {
  put_byte(out, static_cast<uint8_t>(m.code));
  m.ranks.encode(out);
  put_text(out, m.text);
}

bool take(In& in, int world_size, FailedMessage& m) {
  return take_code(in, m.code) && m.code != StatusCode::kOk && take_set(in, world_size, m.ranks) &&
         take_text(in, kMaxTextBytes, m.text);
}

void put(Out& out, const ResolveMessage& m) {
  put_varint(out, static_cast<uint64_t>(m.asker));
  put_varint(out, static_cast<uint64_t>(m.target));
  put_byte(out, m.hops);
}

bool take(In& in, int world_size, ResolveMessage& m) {
  return take_rank(in, world_size, m.asker) && take_rank(in, world_size, m.target) && take_byte(in, m.hops);
}

void put(Out& out, const ResolvedMessage& m) {
  put_varint(out, static_cast<uint64_t>(m.asker));
  put_varint(out, static_cast<uint64_t>(m.target));
  put_byte(out, m.hops);
  put_byte(out, static_cast<uint8_t>(m.code));
  put_blob(out, m.record);
}

bool take(In& in, int world_size, ResolvedMessage& m) {
  return take_rank(in, world_size, m.asker) && take_rank(in, world_size, m.target) && take_byte(in, m.hops) &&
         take_code(in, m.code) && take_blob(in, kMaxTreeRecordBytes, m.record);
}

void put(Out& out, const GoodbyeMessage& m) { m.left.encode(out); }
bool take(In& in, int world_size, GoodbyeMessage& m) { return take_set(in, world_size, m.left); }

void put(Out& out, const SuccessorsMessage& m) {
  put_varint(out, m.successors.size());
  for (const RedirectMessage& successor : m.successors) put(out, successor);
  m.left_roots.encode(out);
}

bool take(In& in, int world_size, SuccessorsMessage& m) {
  size_t count = 0;
  if (!take_number(in, kMaxSuccessors, count)) return false;
  m.successors.resize(count);
  return std::all_of(m.successors.begin(), m.successors.end(),
                     [&](RedirectMessage& successor) { return take(in, world_size, successor); }) &&
         take_set(in, world_size, m.left_roots);
}

void put(Out& out, const QueryMessage& m) {
  put_varint(out, static_cast<uint64_t>(m.asker));
  put_varint(out, m.query);
  put_varint(out, m.patience_ms);
  put_blob(out, m.payload);
}

bool take(In& in, int world_size, QueryMessage& m) {
  return take_rank(in, world_size, m.asker) && take_number(in, UINT32_MAX, m.query) &&
         take_number(in, kMaxPatienceMs, m.patience_ms) && take_blob(in, kMaxTreePayloadBytes, m.payload);
}

void put(Out& out, const AnswersMessage& m) {
  put_varint(out, static_cast<uint64_t>(m.asker));
  put_varint(out, m.query);
  put_varint(out, m.groups.size());
  for (const AnswersMessage::Group& group : m.groups) {
    put_blob(out, group.payload);
    group.ranks.encode(out);
  }
}

bool take(In& in, int world_size, AnswersMessage& m) {
  size_t count = 0;
  if (!take_rank(in, world_size, m.asker) || !take_number(in, UINT32_MAX, m.query)) return false;
  if (!take_number(in, kMaxAnswerGroups, count)) return false;
  for (size_t i = 0; i < count; ++i) {
    AnswersMessage::Group& group = m.groups.emplace_back();
    if (!take_blob(in, kMaxTreePayloadBytes, group.payload) || !take_set(in, world_size, group.ranks)) return false;
  }
  return true;
}

template <size_t kKind>
Result<TreeMessage> decode_kind(In body, int world_size) {
  std::variant_alternative_t<kKind, TreeMessage> message;
  if (!take(body, world_size, message) || !body.empty()) {
    return data_loss("tree message: the body of kind " + std::to_string(kKind) + " is malformed");
  }
  return TreeMessage(std::in_place_index<kKind>, std::move(message));
}

template <size_t... kKinds>
Result<TreeMessage> decode_body(size_t kind, In body, int world_size, std::index_sequence<kKinds...>) {
  using Decode = Result<TreeMessage> (*)(In, int);
  constexpr Decode kDecoders[] = {&decode_kind<kKinds>...};
  return kDecoders[kind](body, world_size);
}

}  // namespace

std::vector<std::byte> encode_tree_message(const TreeMessage& message) {
  std::vector<std::byte> out(kTreeHeaderBytes);
  out[0] = static_cast<std::byte>(message.index());
  std::visit([&](const auto& body) { put(out, body); }, message);
  const size_t body_bytes = out.size() - kTreeHeaderBytes;
  QX_CHECK(body_bytes <= kMaxTreeBodyBytes);
  for (size_t i = 0; i < 3; ++i) out[1 + i] = static_cast<std::byte>(body_bytes >> (8 * i));
  return out;
}

Result<size_t> tree_body_bytes(std::span<const std::byte, kTreeHeaderBytes> header) {
  const auto kind = static_cast<size_t>(header[0]);
  size_t size = 0;
  for (size_t i = 0; i < 3; ++i) size |= static_cast<size_t>(header[1 + i]) << (8 * i);
  if (kind >= std::variant_size_v<TreeMessage>)
    return data_loss("tree message: there is no kind " + std::to_string(kind));
  if (size > kMaxTreeBodyBytes) {
    return data_loss("tree message: a body of " + std::to_string(size) + " bytes, expected at most " +
                     std::to_string(kMaxTreeBodyBytes));
  }
  return size;
}

Result<TreeMessage> decode_tree_message(std::span<const std::byte> bytes, int world_size) {
  if (bytes.size() < kTreeHeaderBytes) return data_loss("tree message: the header is cut off");
  QX_ASSIGN_OR_RETURN(const size_t body_bytes, tree_body_bytes(bytes.first<kTreeHeaderBytes>()));
  if (bytes.size() != kTreeHeaderBytes + body_bytes) return data_loss("tree message: the body is cut off");
  return decode_body(static_cast<size_t>(bytes[0]), bytes.subspan(kTreeHeaderBytes), world_size,
                     std::make_index_sequence<std::variant_size_v<TreeMessage>>());
}

Status check_tree_endpoint(const std::string& endpoint) {
  if (endpoint.size() > kMaxEndpointBytes) return invalid_argument("endpoint " + endpoint + " is too long");
  if (endpoint.starts_with('@')) {
    const bool printable = std::all_of(endpoint.begin(), endpoint.end(), [](char c) { return c > ' ' && c < 0x7f; });
    if (printable && endpoint.size() > 1) return ok_status();
    return invalid_argument("endpoint " + endpoint + " is no name of an abstract socket");
  }
  return parse_endpoint(endpoint).status();
}

}  // namespace qx::collectives
