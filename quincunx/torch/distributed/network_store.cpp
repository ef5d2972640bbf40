#include "quincunx/torch/distributed/network_store.h"

#include "quincunx/torch/distributed/errors.h"

namespace qx::distributed {
namespace {

using collectives::StoreOperation;
using collectives::StoreRequest;
using collectives::StoreResponse;

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

const std::string& first_value(const StoreResponse& response) {
  if (response.values.empty()) throw_status(data_loss("store: a response without its value"));
  return response.values[0];
}

}  // namespace

c10::intrusive_ptr<NetworkStore> NetworkStore::open(const collectives::NetworkStore::Options& options,
                                                    std::chrono::milliseconds timeout) {
  auto store = collectives::NetworkStore::open(options);
  throw_if_error(store.status());
  return c10::make_intrusive<NetworkStore>(std::move(store).value(), timeout);
}

c10::intrusive_ptr<c10d::Store> NetworkStore::clone() {
  auto other = store_->another();
  throw_if_error(other.status());
  auto cloned = c10::make_intrusive<NetworkStore>(std::move(other).value(), timeout_);
  cloned->join_counts_ = join_counts_;
  return cloned;
}

int64_t NetworkStore::count_joining(const std::string& group_name) {
  const std::lock_guard lock(join_counts_->mutex);
  return ++join_counts_->of_group[group_name];
}

StoreResponse NetworkStore::call(StoreOperation operation, std::vector<std::string> keys,
                                 std::vector<std::string> values, int64_t number) {
  StoreRequest request;
  request.operation = operation;
  request.keys = std::move(keys);
  request.values = std::move(values);
  request.number = number;
  return finish(std::move(request), timeout_);
}

StoreResponse NetworkStore::finish(StoreRequest request, std::chrono::milliseconds timeout) {
  Result<StoreResponse> response = store_->call(std::move(request), timeout);
  const Status status = response.ok() ? response->status() : response.status();
  if (status.ok()) return std::move(response).value();
  if (status.code() == StatusCode::kDeadlineExceeded) {
    const c10::SourceLocation location{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
    throw c10::DistStoreError(location, "mccl: the timeout has passed: " + status.message());
  }
  throw_status(status);
}

void NetworkStore::set(const std::string& key, const Bytes& value) {
  call(StoreOperation::kSet, {key}, {text_of(value)});
}

NetworkStore::Bytes NetworkStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  return bytes_of(first_value(call(StoreOperation::kCompareSet, {key}, {text_of(expected), text_of(desired)})));
}

NetworkStore::Bytes NetworkStore::get(const std::string& key) {
  return bytes_of(first_value(call(StoreOperation::kGet, {key})));
}

int64_t NetworkStore::add(const std::string& key, int64_t value) {
  return call(StoreOperation::kAdd, {key}, {}, value).number;
}

bool NetworkStore::deleteKey(const std::string& key) { return call(StoreOperation::kDelete, {key}).number > 0; }

bool NetworkStore::check(const std::vector<std::string>& keys) { return call(StoreOperation::kCheck, keys).number > 0; }

int64_t NetworkStore::getNumKeys() { return call(StoreOperation::kNumKeys, {}).number; }

void NetworkStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  StoreRequest request;
  request.operation = StoreOperation::kWait;
  request.keys = keys;
  // Zero is torch's word for the store's own timeout.
  finish(std::move(request), timeout.count() > 0 ? timeout : timeout_);
}

void NetworkStore::append(const std::string& key, const Bytes& value) {
  call(StoreOperation::kAppend, {key}, {text_of(value)});
}

std::vector<NetworkStore::Bytes> NetworkStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<Bytes> values;
  for (const std::string& value : call(StoreOperation::kGet, keys).values) values.push_back(bytes_of(value));
  return values;
}

void NetworkStore::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  if (keys.size() != values.size()) {
    throw_status(invalid_argument("values: expected one for each of " + std::to_string(keys.size()) + " keys, got " +
                                  std::to_string(values.size())));
  }
  if (keys.empty()) return;
  std::vector<std::string> texts;
  for (const Bytes& value : values) texts.push_back(text_of(value));
  call(StoreOperation::kSet, keys, std::move(texts));
}

void NetworkStore::queuePush(const std::string& key, const Bytes& value) {
  call(StoreOperation::kQueuePush, {key}, {text_of(value)});
}

NetworkStore::Bytes NetworkStore::queuePop(const std::string& key, bool block) {
  return bytes_of(first_value(call(StoreOperation::kQueuePop, {key}, {}, block ? 1 : 0)));
}

int64_t NetworkStore::queueLen(const std::string& key) { return call(StoreOperation::kQueueLength, {key}).number; }

std::vector<std::string> NetworkStore::listKeys() { return call(StoreOperation::kListKeys, {}).values; }

}  // namespace qx::distributed
