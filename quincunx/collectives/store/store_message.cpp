#include "quincunx/collectives/store/store_message.h"

#include <cstring>

namespace qx::collectives {
namespace {

class Writer {
 public:
  Writer() : bytes_(kStoreFrameHeaderBytes) {}

  template <typename T>
  void number(T value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
  }
  void text(const std::string& value) {
    number(static_cast<uint32_t>(value.size()));
    const auto raw = std::as_bytes(std::span(value));
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  void texts(const std::vector<std::string>& list) {
    number(static_cast<uint32_t>(list.size()));
    for (const std::string& value : list) text(value);
  }
  Result<std::vector<std::byte>> finish() && {
    const size_t body = bytes_.size() - kStoreFrameHeaderBytes;
    if (body > kMaxStoreMessageBytes) {
      return invalid_argument("keys and values: expected at most " + std::to_string(kMaxStoreMessageBytes) +
                              " bytes together, got " + std::to_string(body));
    }
    const auto size = static_cast<uint32_t>(body);
    std::memcpy(bytes_.data(), &size, sizeof(size));
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

// Reads zeros past the end and remembers that it did.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename T>
  T number() {
    T value{};
    if (rest_.size() < sizeof(T)) {
      fail();
    } else {
      std::memcpy(&value, rest_.data(), sizeof(T));
      rest_ = rest_.subspan(sizeof(T));
    }
    return value;
  }
  std::string text() {
    const size_t size = number<uint32_t>();
    if (size > rest_.size()) {
      fail();
      return {};
    }
    std::string value(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
    return value;
  }
  std::vector<std::string> texts() {
    std::vector<std::string> list;
    const size_t count = number<uint32_t>();
    // Each has a size of four bytes: a count that cannot be true allocates nothing.
    if (count > rest_.size() / sizeof(uint32_t)) {
      fail();
      return list;
    }
    for (size_t i = 0; i < count && ok_; ++i) list.push_back(text());
    return list;
  }
  Status finish() const {
    return ok_ && rest_.empty() ? ok_status() : data_loss("a store message whose parts do not fit its size");
  }

 private:
  void fail() {
    ok_ = false;
    rest_ = {};
  }
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

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
  Writer writer;
  writer.number(static_cast<uint8_t>(request.operation));
  writer.number(request.client);
  writer.number(request.sequence);
  writer.number(request.number);
  writer.number(request.wait_ms);
  writer.texts(request.keys);
  writer.texts(request.values);
  return std::move(writer).finish();
}

Result<std::vector<std::byte>> encode(const StoreResponse& response) {
  Writer writer;
  writer.number(static_cast<uint8_t>(response.code));
  writer.text(response.error);
  writer.number(response.number);
  writer.texts(response.values);
  return std::move(writer).finish();
}

Result<StoreRequest> decode_store_request(std::span<const std::byte> body) {
  Reader reader(body);
  StoreRequest request;
  const auto operation = reader.number<uint8_t>();
  if (operation > static_cast<uint8_t>(kLastStoreOperation)) return data_loss("a store request of an unknown kind");
  request.operation = static_cast<StoreOperation>(operation);
  request.client = reader.number<uint64_t>();
  request.sequence = reader.number<uint64_t>();
  request.number = reader.number<int64_t>();
  request.wait_ms = reader.number<int64_t>();
  request.keys = reader.texts();
  request.values = reader.texts();
  QX_RETURN_IF_ERROR(reader.finish());
  QX_RETURN_IF_ERROR(check_parts(request));
  return request;
}

Result<StoreResponse> decode_store_response(std::span<const std::byte> body) {
  Reader reader(body);
  StoreResponse response;
  const auto code = reader.number<uint8_t>();
  if (code > static_cast<uint8_t>(StatusCode::kInternal)) return data_loss("a store response with an unknown code");
  response.code = static_cast<StatusCode>(code);
  response.error = reader.text();
  response.number = reader.number<int64_t>();
  response.values = reader.texts();
  QX_RETURN_IF_ERROR(reader.finish());
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
