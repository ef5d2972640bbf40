// Connects the ranks of one job in the background and keeps watch over them: a node of the bootstrap tree, the links
// that are opened when they are needed, and the store where roots are found. Shared by a communicator and all that are
// split from it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "quincunx/collectives/bootstrap/event_loop.h"
#include "quincunx/collectives/bootstrap/front_door.h"
#include "quincunx/collectives/bootstrap/host_memory_exchange.h"
#include "quincunx/collectives/bootstrap/peer_links.h"
#include "quincunx/collectives/bootstrap/rank_record.h"
#include "quincunx/collectives/bootstrap/tree_driver.h"
#include "quincunx/collectives/communicator.h"
#include "quincunx/collectives/engine.h"

namespace qx::collectives {

class Mesh {
 public:
  // Starts a thread that does everything else, the binding of sockets included, unless an interface was chosen: that it
  // is none is told here. Waits for nobody.
  static Result<std::shared_ptr<Mesh>> start(const Options& options, std::shared_ptr<Store> store);
  // Says goodbye, lets what was sent leave, and ends the threads. The pointer from start never runs it on one of them.
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  // Somebody waits, or is about to: connecting begins at once.
  void hurry();
  Status failure() const;
  // Connections dropped because they did not speak the protocol or did not prove who they are.
  uint64_t num_dropped() const { return num_dropped_.load(std::memory_order_relaxed); }
  // Around a fork: nothing that the child will close changes meanwhile.
  void hold_for_fork();
  void release_after_fork();
  // In a child after fork: closes the descriptors, so that the parent's death is seen by its peers, and forgets the
  // threads. Nothing else of the object may be used afterwards.
  void abandon_in_child();

 private:
  using Clock = EventLoop::Clock;

  Mesh(const Options& options, std::shared_ptr<Store> store, RankRecord own);
  static std::shared_ptr<Mesh> make(const Options& options, std::shared_ptr<Store> store, RankRecord own);
  std::unique_ptr<std::thread> start_thread(std::function<void()> body);
  Status bind_doors();
  TreeOptions tree_options() const;
  bool is_root() const;
  // By others, so that this rank is not to leave yet.
  bool is_needed() const;
  void fail(const Status& status);

  // mesh_loop.cpp: the loop's thread
  void run_loop();
  Status prepare();
  Clock::time_point next_timer();
  void join_host(const std::string& identity);
  void on_host_memory(Result<std::shared_ptr<HostMemory>> memory);
  void start_tree();
  std::optional<Proof> proof_for(Purpose purpose) const;
  void take_stream(std::shared_ptr<Stream> stream);
  void on_action(TreeAction action);
  void resolve(int rank, bool afresh);
  void on_ready();
  void on_peer_died(int rank, const Status& status);
  void on_resolved(TreeAction action);
  void after_events(Clock::time_point now);
  void show_progress();

  // mesh_store.cpp: the store's thread
  void run_store();
  std::string key(const std::string& name) const;
  bool publish(const std::string& name, const std::string& value);
  // Asks again and again until it is there; nullopt where nobody needs it any more.
  std::optional<std::string> fetch(const std::string& name);
  std::optional<std::string> fetch_identity();
  void fetch_root(int rank);
  bool let_in_other_hosts();
  // Without a root ranks see each other in the store only: says there that this one is there, and looks for others.
  void look_for_ranks();
  Status with_ranks_of_store(const Status& status);

  const Options options_;
  const std::shared_ptr<Store> store_;
  std::shared_ptr<Engine> engine_;
  RankRecord own_;  // complete once the store's thread begins
  // Of the environment, which the program may change while the loop's thread begins.
  const std::string chosen_interface_, denied_interfaces_;
  const uint64_t job_id_;
  const uint64_t instance_;
  const Clock::time_point started_ = Clock::now();
  std::shared_ptr<const Credentials> credentials_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::kConnecting;
  Status failure_;
  bool has_tree_ = false;  // and peers that come are answered
  std::deque<int> roots_to_fetch_;
  std::string store_error_;
  RankSet missing_;  // when it was last looked at
  bool looks_for_ranks_ = false;
  bool has_looked_at_all_ = false;
  RankSet ranks_of_store_;    // that have been found by it; changed by the store's thread
  bool is_in_store_ = false;  // the store's thread only, as are these
  int rank_to_look_for_ = 0;
  Clock::time_point next_look_for_ranks_{};

  std::atomic<bool> hurried_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> leave_{false};
  std::atomic<bool> has_left_{false};
  std::atomic<uint64_t> num_dropped_{0};
  std::unique_ptr<EventLoop> loop_;
  std::unique_lock<std::recursive_mutex> held_for_fork_;
  std::unique_ptr<FrontDoor> front_door_;
  std::string host_name_;  // "@...", of this job on this host
  std::unique_ptr<HostMemoryExchange> exchange_;
  std::unique_ptr<TreeDriver> tree_;
  std::unique_ptr<PeerLinks> links_;
  std::vector<int> to_resolve_;
  bool all_share_memory_ = false;  // nobody needs the tree to find another
  Clock::time_point leave_began_{}, leaves_at_{};
  Clock::time_point next_look_{};  // at progress and deadlines
  std::unique_ptr<std::thread> loop_thread_;
  std::unique_ptr<std::thread> store_thread_, helper_thread_;  // started by the loop's
};

}  // namespace qx::collectives
