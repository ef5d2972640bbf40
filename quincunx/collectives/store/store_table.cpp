#include "quincunx/collectives/store/store_table.h"

#include <algorithm>
#include <charconv>

namespace qx::collectives {
namespace {

// Clients whose last response is kept; each connection that a rank has ever held at once is one.
constexpr size_t kMaxClients = size_t{1} << 17;

StoreResponse with_number(int64_t number) {
  return {.code = StatusCode::kOk, .error = {}, .number = number, .values = {}};
}

StoreResponse refusal(StatusCode code, std::string error) {
  return {.code = code, .error = std::move(error), .number = 0, .values = {}};
}

}  // namespace

std::optional<StoreResponse> StoreTable::apply(const StoreRequest& request) {
  if (!request.changes_the_store()) return carry_out(request);
  const auto answered = answered_.find(request.client);
  if (answered != answered_.end() && answered->second.sequence == request.sequence) return answered->second.response;
  std::optional<StoreResponse> response = carry_out(request);
  if (response) remember(request, *response);
  return response;
}

void StoreTable::remember(const StoreRequest& request, const StoreResponse& response) {
  const auto [entry, is_new] = answered_.insert_or_assign(request.client, Answered{request.sequence, response});
  if (!is_new) return;
  clients_.push_back(request.client);
  if (clients_.size() <= kMaxClients) return;
  answered_.erase(clients_.front());
  clients_.pop_front();
}

std::optional<StoreResponse> StoreTable::carry_out(const StoreRequest& request) {
  const std::string key = request.keys.empty() ? std::string() : request.keys[0];
  switch (request.operation) {
    case StoreOperation::kSet:
      for (size_t i = 0; i < request.keys.size(); ++i) values_[request.keys[i]] = request.values[i];
      return StoreResponse();
    case StoreOperation::kGet: {
      StoreResponse response;
      size_t num_bytes = 0;
      for (const std::string& wanted : request.keys) {
        const auto found = values_.find(wanted);
        if (found == values_.end()) return std::nullopt;
        num_bytes += found->second.size();
        // Before it is copied: a request may name a large value any number of times.
        if (num_bytes > kMaxStoreMessageBytes) {
          return refusal(StatusCode::kInvalidArgument,
                         "values: expected at most " + std::to_string(kMaxStoreMessageBytes) + " bytes together");
        }
        response.values.push_back(found->second);
      }
      return response;
    }
    case StoreOperation::kWait: return has_all(request) ? std::optional(StoreResponse()) : std::nullopt;
    case StoreOperation::kCheck: return with_number(has_all(request) ? 1 : 0);
    case StoreOperation::kAdd: return add(key, request.number);
    case StoreOperation::kCompareSet: return compare_set(key, request.values[0], request.values[1]);
    case StoreOperation::kDelete: return with_number(static_cast<int64_t>(values_.erase(key) + queues_.erase(key)));
    case StoreOperation::kAppend: values_[key] += request.values[0]; return StoreResponse();
    case StoreOperation::kNumKeys: return with_number(static_cast<int64_t>(values_.size() + queues_.size()));
    case StoreOperation::kListKeys: {
      StoreResponse response;
      for (const auto& [name, value] : values_) response.values.push_back(name);
      for (const auto& [name, queue] : queues_) response.values.push_back(name);
      return response;
    }
    case StoreOperation::kQueuePush: queues_[key].push_back(request.values[0]); return StoreResponse();
    case StoreOperation::kQueuePop: return pop(key, request.number != 0);
    case StoreOperation::kQueueLength: {
      const auto queue = queues_.find(key);
      return with_number(queue == queues_.end() ? 0 : static_cast<int64_t>(queue->second.size()));
    }
  }
  return refusal(StatusCode::kInternal, "an unknown store operation");
}

StoreResponse StoreTable::add(const std::string& key, int64_t amount) {
  const auto found = values_.find(key);
  int64_t value = 0;
  if (found != values_.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      return refusal(StatusCode::kInvalidArgument, "key \"" + key + "\": expected a number to add to, got other text");
    }
  }
  // Wraps, as unsigned numbers do.
  value = static_cast<int64_t>(static_cast<uint64_t>(value) + static_cast<uint64_t>(amount));
  values_[key] = std::to_string(value);
  return with_number(value);
}

// As torch's stores: a key that is missing is set where nothing is expected of it.
StoreResponse StoreTable::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  StoreResponse response;
  const auto found = values_.find(key);
  if (found == values_.end()) {
    if (expected.empty()) values_[key] = desired;
    response.values = {expected.empty() ? desired : expected};
  } else {
    if (found->second == expected) found->second = desired;
    response.values = {found->second};
  }
  return response;
}

std::optional<StoreResponse> StoreTable::pop(const std::string& key, bool waits) {
  const auto queue = queues_.find(key);
  if (queue == queues_.end()) {
    if (waits) return std::nullopt;
    return refusal(StatusCode::kNotFound, "queue \"" + key + "\" is empty");
  }
  StoreResponse response;
  response.values.push_back(std::move(queue->second.front()));
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
  return response;
}

bool StoreTable::has(const std::string& key) const { return values_.contains(key) || queues_.contains(key); }

bool StoreTable::has_all(const StoreRequest& request) const {
  return std::all_of(request.keys.begin(), request.keys.end(), [&](const std::string& key) { return has(key); });
}

std::string StoreTable::missing_keys(const StoreRequest& request) const {
  std::string text;
  for (const std::string& key : request.keys) {
    if (!has(key)) text += (text.empty() ? "" : ", ") + key;
  }
  return text;
}

}  // namespace qx::collectives
