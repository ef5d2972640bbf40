#include "quincunx/collectives/store/network_store.h"

#include <map>
#include <mutex>

#include "quincunx/base/fnv1a.h"
#include "quincunx/collectives/store/store_connections.h"

namespace qx::collectives {
namespace {

// A rank that only leaves a value behind waits this long for rank 0 to come.
constexpr std::chrono::milliseconds kSetLimit{std::chrono::minutes(30)};

// How often this process has opened the place, this time included.
int count_opening(const std::string& place) {
  static std::mutex mutex;
  static auto* const counts = new std::map<std::string, int>;
  const std::lock_guard lock(mutex);
  return ++(*counts)[place];
}

Status check(const NetworkStore::Options& options) {
  if (options.host.empty()) return invalid_argument("host: expected an address or a name, got none");
  if (options.host == "0.0.0.0" || options.host == "::") {
    return invalid_argument("host: expected an address that the ranks can reach rank 0 at, got " + options.host);
  }
  if (options.port == 0 && options.rank != 0) return invalid_argument("port: expected 1 to 65535, got 0");
  if (options.world_size < 1) {
    return invalid_argument("world_size: must be positive, got " + std::to_string(options.world_size));
  }
  if (options.rank >= 0 && options.rank < options.world_size) return ok_status();
  return invalid_argument("rank: expected 0 to " + std::to_string(options.world_size - 1) + ", got " +
                          std::to_string(options.rank));
}

}  // namespace

Result<std::shared_ptr<NetworkStore>> NetworkStore::open(const Options& options) {
  QX_RETURN_IF_ERROR(check(options));
  const std::string place = options.host + ":" + std::to_string(options.port);
  const std::string generation = options.generation.empty()
                                     ? "#" + std::to_string(count_opening(place + "/" + std::to_string(options.rank)))
                                     : options.generation;
  const uint64_t job_id = fnv1a(generation + "/" + std::to_string(options.world_size));
  if (options.ends_former) StoreConnections::end_all_at(options.host, options.port);
  auto connections = std::make_shared<StoreConnections>(options, job_id);
  QX_RETURN_IF_ERROR(connections->start());
  return std::shared_ptr<NetworkStore>(new NetworkStore(std::move(connections), place + "/" + generation));
}

Result<std::shared_ptr<NetworkStore>> NetworkStore::another() const {
  auto connections = connections_->another();
  QX_RETURN_IF_ERROR(connections->start());
  return std::shared_ptr<NetworkStore>(new NetworkStore(std::move(connections), identity_));
}

NetworkStore::~NetworkStore() { connections_->cancel(); }

Result<StoreResponse> NetworkStore::call(StoreRequest request, std::chrono::milliseconds timeout) {
  return connections_->call(std::move(request), timeout);
}

Status NetworkStore::set(const std::string& key, const std::string& value) {
  StoreRequest request;
  request.operation = StoreOperation::kSet;
  request.keys = {key};
  request.values = {value};
  const Result<StoreResponse> response = call(std::move(request), kSetLimit);
  return response.ok() ? response->status() : response.status();
}

Result<std::string> NetworkStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  StoreRequest request;
  request.operation = StoreOperation::kGet;
  request.keys = {key};
  Result<StoreResponse> response = call(std::move(request), timeout);
  const Status status = response.ok() ? response->status() : response.status();
  if (status.code() == StatusCode::kDeadlineExceeded) QX_RETURN_IF_ERROR(trouble());
  QX_RETURN_IF_ERROR(status);
  if (response->values.size() != 1) return data_loss("store: a response without the value of key " + key);
  return std::move(response->values[0]);
}

Status NetworkStore::trouble() const { return connections_->trouble(); }

void NetworkStore::cancel() { connections_->cancel(); }

uint16_t NetworkStore::port() const { return connections_->port(); }

size_t NetworkStore::num_served_connections() const { return connections_->num_served_connections(); }

}  // namespace qx::collectives
