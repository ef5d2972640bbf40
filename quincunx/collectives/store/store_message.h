// What a store's client and server say to each other: one request, one response, each a frame of its size (4 bytes) and
// a body. The parsers check every length; a body that is not exactly one message is kDataLoss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::collectives {

enum class StoreOperation : uint8_t {
  kSet,         // all keys to their values
  kGet,         // the values of all keys, when all are there
  kWait,        // as kGet, without values
  kCheck,       // number: whether all are there
  kAdd,         // number is added to the decimal number of the key; number: the sum
  kCompareSet,  // values: expected and desired; the value that the key then has
  kDelete,      // number: whether it was there
  kAppend,
  kNumKeys,
  kListKeys,
  kQueuePush,
  kQueuePop,  // number: whether to wait for an element
  kQueueLength,
};
inline constexpr StoreOperation kLastStoreOperation = StoreOperation::kQueueLength;

// Longer ones are refused by both ends.
inline constexpr size_t kMaxStoreMessageBytes = size_t{16} << 20;
inline constexpr size_t kStoreFrameHeaderBytes = 4;

struct StoreRequest {
  StoreOperation operation = StoreOperation::kSet;
  // One that changes the store is carried out once for each pair, however often it is sent.
  uint64_t client = 0;
  uint64_t sequence = 0;
  int64_t number = 0;
  int64_t wait_ms = 0;  // how long the server may keep it
  std::vector<std::string> keys;
  std::vector<std::string> values;

  bool changes_the_store() const;
};

struct StoreResponse {
  StatusCode code = StatusCode::kOk;
  std::string error;
  int64_t number = 0;
  std::vector<std::string> values;

  Status status() const { return code == StatusCode::kOk ? Status() : Status(code, error); }
};

// The whole frame; kInvalidArgument where it would be longer than a message may be.
Result<std::vector<std::byte>> encode(const StoreRequest& request);
Result<std::vector<std::byte>> encode(const StoreResponse& response);
// Of the body alone. kDataLoss also where an operation does not have the keys and values that it needs.
Result<StoreRequest> decode_store_request(std::span<const std::byte> body);
Result<StoreResponse> decode_store_response(std::span<const std::byte> body);
// The size of the body of the frame that begins here: nullopt where its header has not arrived whole.
Result<std::optional<size_t>> store_body_bytes(std::span<const std::byte> received);

}  // namespace qx::collectives
