// torch's rendezvous store as the store of a communicator.
#pragma once

#include <atomic>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "quincunx/collectives/communicator.h"
#include "quincunx/torch/distributed/network_store.h"

namespace qx::distributed {

// Holds the C++ store, so that it outlives the Python object. Keys carry the generation and the number of times that
// this rank has joined in it, counted in the store: a second group on the same store, or a restarted process, never
// reads the addresses of the first, and ranks that ended before they joined do not count into the next generation. The
// store of mccl:// is made anew for each start of the job, so that each rank counts what it has joined over its own,
// and rank 0 is asked by the leaders of hosts alone. get polls: c10d stores hold their lock while they wait, which
// would block the thread that uses the store for else.
class StoreAdapter : public collectives::Store {
 public:
  StoreAdapter(c10::intrusive_ptr<c10d::Store> store, const collectives::Options& options);

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  // Known where torch's store is that of mccl:// or a file.
  std::string identity() override;
  // Ends a get that waits, and every later one.
  void close() override;

 private:
  int64_t count_joining();
  std::string full_key(const std::string& key);
  void wait_for(const std::string& name, std::chrono::steady_clock::duration limit);

  c10::intrusive_ptr<c10d::Store> store_;
  // Behind the prefixes of store_, where that is the store of mccl://: it can wait without holding up who else uses it.
  NetworkStore* network_ = nullptr;
  const int rank_;
  const std::string group_name_;
  const std::string prefix_;
  std::mutex mutex_;
  int64_t join_count_ = 0;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace qx::distributed
