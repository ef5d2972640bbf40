// torch's rendezvous store as the store of a communicator.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "quincunx/collectives/communicator.h"
#include "quincunx/torch/distributed/network_store.h"

namespace qx::distributed {

// Holds the C++ store, so that it outlives the Python object. Keys carry the generation and the number of times that
// this rank has joined in it, counted in the store: a second group on the same store never reads the addresses of the
// first. Ranks meet where they have joined equally often; get tells where they have not. Over the store of mccl://,
// which ends with rank 0, each process counts for itself, so that rank 0 is asked by the leaders of hosts alone: one
// that is started again alone comes to the group that it was in, and is told that this one is complete. get polls:
// c10d stores hold their lock while they wait, which would block the thread that uses the store for else.
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
  // kFailedPrecondition where rank 0 has joined another number of times.
  Status compare_with_root();
  // The store has failed, and is not to be asked again before its time.
  Status fail(const std::string& what, const std::exception& error);
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
  // Used by one thread.
  Status failure_, comparison_;
  std::chrono::steady_clock::duration pause_{};
  std::chrono::steady_clock::time_point next_try_{}, next_comparison_{};
};

}  // namespace qx::distributed
