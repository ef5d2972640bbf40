// A store that rank 0 of a job serves to all. Opening it waits for nothing: each operation connects when it needs to,
// with pauses that grow with the time that it has waited, until its deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/security/secure_channel.h"
#include "quincunx/collectives/store/store_message.h"

namespace qx::collectives {

class StoreServer;
class StoreConnections;

class NetworkStore : public Store {
 public:
  struct Options {
    // A numeric address of rank 0, "localhost", or a name, which is looked up in the background.
    std::string host;
    uint16_t port = 0;  // 0, on rank 0 only: one that the system chooses
    int rank = 0;       // rank 0 serves
    int world_size = 1;
    // Names one start of the job. Empty: the number of times that this process has opened this host and port, so that
    // ranks that start together again never meet the server of the last time.
    std::string generation;
    Credentials credentials;
    size_t max_served_connections = 128;  // of rank 0 at once: others take turns
    // This start takes the place of the one before: a server that this process still has there is ended, whoever holds
    // it.
    bool ends_former = false;
  };
  // kUnavailable where this is rank 0 and the port is taken; where the host is a name, the operations tell.
  static Result<std::shared_ptr<NetworkStore>> open(const Options& options);
  ~NetworkStore() override;

  // The same store over connections of its own: what is cancelled there goes on here. The server of rank 0 lives as
  // long as either.
  Result<std::shared_ptr<NetworkStore>> another() const;

  // One request and its response. Thread-safe; several run beside each other. kDeadlineExceeded names the keys that
  // are not set, or says why rank 0 was not reached.
  Result<StoreResponse> call(StoreRequest request, std::chrono::milliseconds timeout);

  // Of Store. A key that is missing for a reason that is known is kUnavailable.
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;

  // Of the place and the start of the job.
  std::string identity() override { return identity_; }

  // Why ranks do not come together here: rank 0 is not reached, or has refused others. Ok where nothing is known.
  Status trouble() const;
  // Ends all operations that wait, and every later one, with kAborted.
  void cancel();
  // The one that this process serves at, for a job whose port the system chose; 0 elsewhere.
  uint16_t port() const;
  // What this process holds as the server; 0 elsewhere.
  size_t num_served_connections() const;

 private:
  NetworkStore(std::shared_ptr<StoreConnections> connections, std::string identity)
      : connections_(std::move(connections)), identity_(std::move(identity)) {}
  const std::shared_ptr<StoreConnections> connections_;
  const std::string identity_;
};

}  // namespace qx::collectives
