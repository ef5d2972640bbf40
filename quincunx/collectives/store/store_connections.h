// A process's side of a network store: the server, where it is rank 0, which is asked without a connection; elsewhere
// connections to it that are opened when an operation needs one. Shared with the look-up of the host's name, which may
// end after the store has gone.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "quincunx/collectives/security/secure_channel.h"
#include "quincunx/collectives/store/network_store.h"
#include "quincunx/collectives/store/store_server.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives {

class StoreConnections : public std::enable_shared_from_this<StoreConnections> {
 public:
  using Clock = std::chrono::steady_clock;

  StoreConnections(const NetworkStore::Options& options, uint64_t job_id);
  ~StoreConnections();
  // Cancels those of this process at that place, and ends the server that they have there.
  static void end_all_at(const std::string& host, uint16_t port);
  // Other connections of this process to the same server, which lives as long as either. To be started too.
  std::shared_ptr<StoreConnections> another() const;
  // Serves, where this is rank 0 and the host is an address, or starts to look the name up.
  Status start();
  Result<StoreResponse> call(StoreRequest request, std::chrono::milliseconds timeout);
  void cancel();
  uint16_t port() const;
  size_t num_served_connections() const;
  // Why ranks do not come together here: rank 0 is not reached, or has refused others. Ok where nothing is known.
  Status trouble() const;
  // Around a fork: nothing that the child will close changes meanwhile.
  void hold_for_fork() { mutex_.lock(); }
  void release_after_fork() { mutex_.unlock(); }
  StoreServer* server() const { return server_.get(); }
  // In a child after fork, before the release: closes all descriptors; every later operation fails.
  void abandon_in_child();

 private:
  // One request at a time; its number stays the same when it is sent again over another connection.
  struct Line {
    uint64_t client = 0;
    uint64_t sequence = 0;
    Socket socket;
    std::unique_ptr<SecureChannel> channel;
    std::vector<std::byte> received;
  };
  class Borrowed;

  Status serve(const std::vector<std::string>& addresses);
  void look_up();
  std::shared_ptr<StoreServer> own_server() const;
  Result<StoreResponse> call_own(StoreServer& server, const StoreRequest& request, Clock::time_point deadline) const;
  Status lost(const std::string& what) const;
  Result<StoreResponse> try_call(Line& line, const std::vector<std::byte>& frame, Clock::time_point deadline);
  Status connect(Line& line, Clock::time_point deadline);
  Status connect_to(Line& line, const Endpoint& endpoint, Clock::time_point deadline);
  Status authenticate(Line& line, Clock::time_point deadline);
  Status wait_for(const Line& line, short events, Clock::time_point deadline) const;
  Status send_outgoing(Line& line, Clock::time_point deadline);
  Status receive_some(Line& line, Clock::time_point deadline);
  void hang_up(Line& line);
  // Waits until rank 0 is to be looked for again; false where the deadline is sooner.
  bool await_turn(Clock::time_point deadline);
  void note_failure(const Status& status);
  std::string describe_failure() const;
  Status cancelled() const;

  const NetworkStore::Options options_;
  const uint64_t job_id_;
  const pid_t pid_;
  mutable std::mutex mutex_;
  std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
  bool cancelled_ = false;
  bool abandoned_ = false;
  Status failure_;                      // of serving or of the look-up, for good
  std::vector<std::string> addresses_;  // of rank 0; empty while the name is looked up
  size_t turn_ = 0;                     // which of them is tried next
  bool serves_;
  std::shared_ptr<StoreServer> server_;
  // While rank 0 is not reached. All calls share it: a rank that asks in many short ones must not knock in each.
  struct Unreached {
    Status last, refusal;
    Clock::time_point since, next_attempt;
  };
  std::optional<Unreached> unreached_;
  std::vector<std::unique_ptr<Line>> lines_;
  std::vector<Line*> free_lines_;
};

}  // namespace qx::collectives
