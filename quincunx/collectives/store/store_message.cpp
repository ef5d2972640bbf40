#include "quincunx/collectives/store/store_message.h"

#include <algorithm>
#include <cstring>

#include "quincunx/collectives/bootstrap/wire_bytes.h"

namespace qx::collectives {
namespace {

using Bytes = std::span<const std::byte>;

// Of a list: an empty one takes a byte of a message and much more of memory.
constexpr size_t kMaxTexts = size_t{1} << 20;

void put_texts(std::vector<std::byte>& out, const std::vector<std::string>& list) {
  put_varint(out, list.size());
  for (const std::string& value : list) put_text(out, value);
}

bool take_texts(Bytes& bytes, std::vector<std::string>& list) {
  size_t count = 0;
  // Each has a length of a byte at least: a count that cannot be true allocates nothing.
  if (!take_number(bytes, std::min(bytes.size(), kMaxTexts), count)) return false;
  list.resize(count);
  return std::all_of(list.begin(), list.end(),
                     [&](std::string& value) { return take_text(bytes, kMaxStoreMessageBytes, value); });
}

bool take_signed(Bytes& bytes, int64_t& value) {
  uint64_t bits = 0;
  if (!take_u64(bytes, bits)) return false;
  value = static_cast<int64_t>(bits);
  return true;
}

// Room for the size of the body, which follows.
std::vector<std::byte> begin_frame() {
  std::vector<std::byte> frame;
  frame.reserve(128);  // most messages are short
  frame.resize(kStoreFrameHeaderBytes);
  return frame;
}

// Writes its size in front of a body that begins behind room for it.
Result<std::vector<std::byte>> finish(std::vector<std::byte> frame, size_t num_texts) {
  if (num_texts > kMaxTexts) {
    return invalid_argument("keys and values: expected at most " + std::to_string(kMaxTexts) + " of each, got " +
                            std::to_string(num_texts));
  }
  const size_t body = frame.size() - kStoreFrameHeaderBytes;
  if (body > kMaxStoreMessageBytes) {
    return invalid_argument("keys and values: expected at most " + std::to_string(kMaxStoreMessageBytes) +
                            " bytes together, got " + std::to_string(body));
  }
  const auto size = static_cast<uint32_t>(body);
  std::memcpy(frame.data(), &size, sizeof(size));
  return frame;
}

Status does_not_fit() { return data_loss("a store message whose parts do not fit its size"); }

Status check_parts(const StoreRequest& request) {
  const size_t keys = request.keys.size();
  const size_t values = request.values.size();
  bool fits = false;
  switch (request.operation) {
    case StoreOperation::kSet: fits = keys > 0 && keys == values; break;
    case StoreOperation::kGet:
    case StoreOperation::kWait:
    case StoreOperation::kCheck: fits = values == 0; break;
    case StoreOperation::kAdd:
    case StoreOperation::kDelete:
    case StoreOperation::kQueuePop:
    case StoreOperation::kQueueLength: fits = keys == 1 && values == 0; break;
    case StoreOperation::kCompareSet: fits = keys == 1 && values == 2; break;
    case StoreOperation::kAppend:
    case StoreOperation::kQueuePush: fits = keys == 1 && values == 1; break;
    case StoreOperation::kNumKeys:
    case StoreOperation::kListKeys: fits = keys == 0 && values == 0; break;
  }
  return fits ? ok_status() : data_loss("a store request without the keys and values of its operation");
}

}  // namespace

bool StoreRequest::changes_the_store() const {
  switch (operation) {
    case StoreOperation::kGet:
    case StoreOperation::kWait:
    case StoreOperation::kCheck:
    case StoreOperation::kNumKeys:
    case StoreOperation::kListKeys:
    case StoreOperation::kQueueLength: return false;
    default: return true;
  }
}

Result<std::vector<std::byte>> encode(const StoreRequest& request) {
  std::vector<std::byte> frame = begin_frame();
  put_byte(frame, static_cast<uint8_t>(request.operation));
  put_u64(frame, request.client);
  put_u64(frame, request.sequence);
  put_u64(frame, static_cast<uint64_t>(request.number));
  put_u64(frame, static_cast<uint64_t>(request.wait_ms));
  put_texts(frame, request.keys);
  put_texts(frame, request.values);
  return finish(std::move(frame), std::max(request.keys.size(), request.values.size()));
}

Result<std::vector<std::byte>> encode(const StoreResponse& response) {
  std::vector<std::byte> frame = begin_frame();
  put_byte(frame, static_cast<uint8_t>(response.code));
  put_text(frame, response.error);
  put_u64(frame, static_cast<uint64_t>(response.number));
  put_texts(frame, response.values);
  return finish(std::move(frame), response.values.size());
}

Result<StoreRequest> decode_store_request(Bytes body) {
  StoreRequest request;
  uint8_t operation = 0;
  if (!take_byte(body, operation)) return does_not_fit();
  if (operation > static_cast<uint8_t>(kLastStoreOperation)) return data_loss("a store request of an unknown kind");
  request.operation = static_cast<StoreOperation>(operation);
  const bool is_whole = take_u64(body, request.client) && take_u64(body, request.sequence) &&
                        take_signed(body, request.number) && take_signed(body, request.wait_ms) &&
                        take_texts(body, request.keys) && take_texts(body, request.values);
  if (!is_whole || !body.empty()) return does_not_fit();
  QX_RETURN_IF_ERROR(check_parts(request));
  return request;
}

Result<StoreResponse> decode_store_response(Bytes body) {
  StoreResponse response;
  uint8_t code = 0;
  if (!take_byte(body, code)) return does_not_fit();
  if (code > static_cast<uint8_t>(StatusCode::kInternal)) return data_loss("a store response with an unknown code");
  response.code = static_cast<StatusCode>(code);
  const bool is_whole = take_text(body, kMaxStoreMessageBytes, response.error) && take_signed(body, response.number) &&
                        take_texts(body, response.values);
  if (!is_whole || !body.empty()) return does_not_fit();
  return response;
}

Result<std::optional<size_t>> store_body_bytes(std::span<const std::byte> received) {
  if (received.size() < kStoreFrameHeaderBytes) return std::optional<size_t>();
  uint32_t size = 0;
  std::memcpy(&size, received.data(), sizeof(size));
  if (size > kMaxStoreMessageBytes) {
    return data_loss("a store message of " + std::to_string(size) + " bytes, longer than one may be");
  }
  return std::optional<size_t>(size);
}

}  // namespace qx::collectives
