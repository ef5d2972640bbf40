// Serves a StoreTable over TCP from one background thread, and to its own process without a connection. A connection
// must prove that it belongs to the job before it is read any further; one that is idle is closed, clients come back.
// Few are taken at a time: the others stay in the system's queue until one has gone, which it does sooner then. Those
// that have waited for a value for a while do not count among them. A process therefore holds few descriptors however
// large the job is.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "quincunx/collectives/security/secure_channel.h"
#include "quincunx/collectives/store/store_table.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives {

class StoreServer {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::vector<std::string> addresses;  // numeric; those that are not of this machine are passed over
    uint16_t port = 0;                   // 0: one that the system chooses
    Credentials credentials;
    Identity identity;
    size_t max_connections = 128;  // with those that wait for a value: the one that has waited longest makes room
    size_t max_passing = 128;      // without them
    std::chrono::milliseconds idle_limit{100};
  };
  // kUnavailable, with the address, where another process has the port or no address is of this machine.
  static Result<std::unique_ptr<StoreServer>> start(Options options);
  // Ends the thread; in a forked child only forgets it.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  uint16_t port() const { return port_; }
  size_t num_connections() const { return num_connections_; }
  // Connections that were dropped because they did not prove themselves or did not speak the protocol.
  uint64_t num_dropped() const { return num_dropped_; }
  // Of the last one that spoke the protocol and did not prove itself, with their number; ok where there was none.
  Status refusal() const;
  // A request of this process. nullopt where it waits for keys that are not there by then, or where it was woken.
  std::optional<StoreResponse> call(const StoreRequest& request, Clock::time_point wait_until);
  void wake_callers() { changed_->notify_all(); }
  // Frees the port and closes all connections, whoever holds the server. By one thread at a time.
  void stop();
  std::string missing_keys(const StoreRequest& request);
  // Around a fork: nothing that the child will close changes meanwhile.
  void hold_for_fork() { busy_.lock(); }
  void release_after_fork() { busy_.unlock(); }
  // In a child after fork, before the release: closes the descriptors.
  void abandon_in_child();

 private:
  struct Connection {
    Socket socket;
    std::unique_ptr<SecureChannel> channel;
    std::vector<std::byte> received;
    std::vector<std::byte> outgoing;
    std::optional<StoreRequest> waiting;
    Clock::time_point wait_until, last_used;  // while it waits, since when
    bool has_spoken = false;
  };

  explicit StoreServer(Options options) : options_(std::move(options)) {}
  void wake();
  Status listen();
  Status listen_at(const std::string& address);
  void run();
  void admit(const Socket& listener);
  void make_room(Clock::time_point now);
  void set_full(bool full);
  size_t num_passing(Clock::time_point now) const;
  static Clock::time_point turn_ends(const Connection& connection);
  void take_turns(Clock::time_point now);
  // False where the connection is to be closed.
  bool on_event(Connection& connection, uint32_t events);
  bool read_some(Connection& connection);
  bool take_requests(Connection& connection);
  void note_refusal(const SecureChannel& channel);
  void answer(Connection& connection, const StoreRequest& request);
  // Whether there was one.
  bool answer_waiting();
  void respond(Connection& connection, const StoreResponse& response);
  bool flush(Connection& connection);
  void close(int fd);
  Clock::time_point idle_until(const Connection& connection) const;
  void expire(Clock::time_point now);
  int milliseconds_to_next_event(Clock::time_point now) const;

  Options options_;
  std::vector<Socket> listeners_;
  uint16_t port_ = 0;
  Socket epoll_, wake_;
  pid_t pid_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> num_connections_{0};
  std::atomic<uint64_t> num_dropped_{0};
  mutable std::mutex refusal_mutex_;
  Status refusal_;
  uint64_t num_refused_ = 0;
  std::mutex busy_;  // held while the thread does anything but wait
  std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
  // Used under the lock only.
  StoreTable table_;
  std::unordered_map<int, Connection> connections_;
  bool is_full_ = false;  // nobody is taken from the listeners' queues
  std::unique_ptr<std::thread> thread_;
};

}  // namespace qx::collectives
