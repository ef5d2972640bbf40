// The store of mccl:// as a store of torch.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "quincunx/collectives/store/network_store.h"

namespace qx::distributed {

// Operations wait up to the store's timeout; opening it waits for nothing. Thread-safe: no lock is held while one
// waits.
class NetworkStore : public c10d::Store {
 public:
  static c10::intrusive_ptr<NetworkStore> open(const collectives::NetworkStore::Options& options,
                                               std::chrono::milliseconds timeout);
  NetworkStore(std::shared_ptr<collectives::NetworkStore> store, std::chrono::milliseconds timeout)
      : Store(timeout), store_(std::move(store)) {}

  using Bytes = std::vector<uint8_t>;
  using c10d::Store::compareSet;
  using c10d::Store::set;
  // Over connections of its own, so that it can be cancelled alone.
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const Bytes& value) override;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
  Bytes get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const Bytes& value) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override;
  bool hasExtendedApi() const override { return true; }
  void queuePush(const std::string& key, const Bytes& value) override;
  Bytes queuePop(const std::string& key, bool block) override;
  int64_t queueLen(const std::string& key) override;
  std::vector<std::string> listKeys() override;

  collectives::NetworkStore& core() const { return *store_; }
  // How often this rank has joined a group of that name over the store and its clones, this time included.
  int64_t count_joining(const std::string& group_name);

 private:
  struct JoinCounts {
    std::mutex mutex;
    std::map<std::string, int64_t> of_group;
  };
  collectives::StoreResponse call(collectives::StoreOperation operation, std::vector<std::string> keys,
                                  std::vector<std::string> values = {}, int64_t number = 0);
  // The response to the request; DistStoreError where it took too long.
  collectives::StoreResponse finish(collectives::StoreRequest request, std::chrono::milliseconds timeout);

  const std::shared_ptr<collectives::NetworkStore> store_;
  std::shared_ptr<JoinCounts> join_counts_ = std::make_shared<JoinCounts>();
};

}  // namespace qx::distributed
