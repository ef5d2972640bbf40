// The keys, values and queues of a store, and what each request does to them. No input or output, no time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "quincunx/collectives/store/store_message.h"

namespace qx::collectives {

// Used by one thread.
class StoreTable {
 public:
  // The response; nullopt where the request waits for keys that are not there. A request that changes the store and
  // was carried out before gets the response that it got then.
  std::optional<StoreResponse> apply(const StoreRequest& request);
  // The keys of a waiting request that are not there, as a list for an error: "a, b".
  std::string missing_keys(const StoreRequest& request) const;

 private:
  struct Answered {
    uint64_t sequence = 0;
    StoreResponse response;
  };
  std::optional<StoreResponse> carry_out(const StoreRequest& request);
  StoreResponse add(const std::string& key, int64_t amount);
  StoreResponse compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  std::optional<StoreResponse> pop(const std::string& key, bool waits);
  bool has(const std::string& key) const;
  bool has_all(const StoreRequest& request) const;
  void remember(const StoreRequest& request, const StoreResponse& response);

  std::map<std::string, std::string> values_;
  std::map<std::string, std::deque<std::string>> queues_;  // never empty ones
  std::unordered_map<uint64_t, Answered> answered_;        // the last request of each client
  std::deque<uint64_t> clients_;                           // in the order of their first request
};

}  // namespace qx::collectives
