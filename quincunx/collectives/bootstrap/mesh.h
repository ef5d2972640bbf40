// Connects the ranks of one job in the background and keeps watch over the connections: drives Rendezvous on a store
// and on sockets, hands links to the engine, and notices peers that die. Shared by a communicator and all that are
// split from it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "quincunx/collectives/bootstrap/rendezvous.h"
#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/engine.h"
#include "quincunx/collectives/transport/shared_memory.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives {

class Mesh {
 public:
  // Opens the listening socket and the shared segment and starts the threads; waits for nobody.
  static Result<std::shared_ptr<Mesh>> start(const Options& options, std::shared_ptr<Store> store);
  // Says goodbye, lets what was sent leave, and ends the threads. The pointer from start never runs it on one of them.
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  Status failure() const;
  // Connections dropped because they did not speak the protocol or lacked the token.
  uint64_t num_dropped() const { return num_dropped_.load(std::memory_order_relaxed); }
  // In a child after fork: closes the descriptors, so that the parent's death is seen by its peers, and forgets the
  // threads. Nothing else of the object may be used afterwards.
  void abandon_in_child();

 private:
  // A connection whose handshake is not complete.
  struct Pending {
    Socket socket;
    int rank = -1;  // known where this rank connects
    bool hello_sent = false;
    std::unique_ptr<Segment> segment;  // of the peer, mapped by the connecting side
    std::vector<std::byte> received;
    Clock::time_point deadline;
  };

  Mesh(const Options& options, std::shared_ptr<Store> store, PeerRecord own);
  static std::shared_ptr<Mesh> make(const Options& options, std::shared_ptr<Store> store, PeerRecord own);
  bool is_own_thread() const;

  void run_store();
  bool publish(const std::string& key, const std::string& value);
  void fetch(const Rendezvous::Fetch& wanted);
  void run_sockets();
  void start_connects();
  void begin_connect(int rank, const std::string& endpoint);
  void accept_all(const Socket& listener);
  void on_pending_event(int fd, uint32_t events);
  void send_hello(Pending& pending);
  // A whole first frame has arrived.
  Status on_first_frame(Pending& pending, const FrameHeader& header, std::span<const std::byte> payload,
                        std::vector<std::byte> rest);
  void complete(Pending& pending, int rank, std::unique_ptr<Segment> segment, std::vector<std::byte> rest);
  void drop(int fd, const std::string& reason);
  void on_peer_event(int rank);
  std::string loss_text(int rank, const std::string& how) const;
  void expire(Clock::time_point now);
  void refresh_connect_states();
  int milliseconds_to_next_event(Clock::time_point now);
  void fail(const Status& status);
  void wake_sockets();
  std::string key(const char* kind, int rank) const;

  const Options options_;
  const std::shared_ptr<Store> store_;
  const Clock::time_point started_ = Clock::now();
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Segment> segment_;
  const uint64_t job_id_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Rendezvous rendezvous_;
  Phase phase_ = Phase::kConnecting;
  Status failure_;
  std::vector<Socket> listeners_;
  size_t num_watched_listeners_ = 0;

  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> num_dropped_{0};
  Socket epoll_;
  Socket wake_;
  std::map<int, Pending> pending_;   // used by the socket thread only
  std::vector<Socket> sockets_;      // by rank, once up
  std::vector<TcpLink*> tcp_links_;  // null where the peer shares memory
  int num_shared_ = 0;
  std::unique_ptr<std::thread> store_thread_, socket_thread_, helper_thread_;
};

}  // namespace qx::collectives
