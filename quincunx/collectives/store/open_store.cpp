#include "quincunx/collectives/store/open_store.h"

#include <charconv>

#include "quincunx/collectives/store/file_store.h"
#include "quincunx/collectives/store/network_store.h"

namespace qx::collectives {
namespace {

constexpr std::string_view kNetwork = "mccl://", kFile = "file://";

// One communicator's alone: what still waits when that one has ended is of no use to anybody.
class OwnStore final : public Store {
 public:
  explicit OwnStore(std::shared_ptr<NetworkStore> store) : store_(std::move(store)) {}
  Status set(const std::string& key, const std::string& value) override { return store_->set(key, value); }
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->get(key, timeout);
  }
  std::string identity() override { return store_->identity(); }
  void close() override { store_->cancel(); }

 private:
  const std::shared_ptr<NetworkStore> store_;
};

Status bad_address(const std::string& address) {
  return invalid_argument("address: expected mccl://host:port or file:///directory, got \"" + address + "\"");
}

Result<std::shared_ptr<Store>> open_network_store(const std::string& address, const Options& options) {
  NetworkStore::Options network;
  const std::string place = address.substr(kNetwork.size());
  const size_t colon = place.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad_address(address);
  network.host = place.substr(0, colon);
  const char* const end = place.data() + place.size();
  const auto [rest, error] = std::from_chars(place.data() + colon + 1, end, network.port);
  if (error != std::errc() || rest != end || network.port == 0) return bad_address(address);
  const bool has_brackets = network.host.front() == '[' && network.host.back() == ']' && network.host.size() > 2;
  if (has_brackets) network.host = network.host.substr(1, network.host.size() - 2);
  network.rank = options.rank;
  network.world_size = options.world_size;
  network.generation = options.generation;
  if (options.credentials != nullptr) {
    network.credentials = *options.credentials;
  } else {
    QX_ASSIGN_OR_RETURN(network.credentials, Credentials::from_environment());
  }
  QX_ASSIGN_OR_RETURN(std::shared_ptr<NetworkStore> store, NetworkStore::open(network));
  return std::shared_ptr<Store>(std::make_shared<OwnStore>(std::move(store)));
}

}  // namespace

Result<std::shared_ptr<Store>> open_store(const std::string& address, const Options& options) {
  if (address.starts_with(kNetwork)) return open_network_store(address, options);
  if (!address.starts_with(kFile) || address.size() <= kFile.size() || address[kFile.size()] != '/') {
    return bad_address(address);
  }
  return FileStore::open(address.substr(kFile.size()));
}

}  // namespace qx::collectives
