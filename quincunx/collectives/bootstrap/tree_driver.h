// A node of the bootstrap tree with its sockets: carries out what the node wants done on an event loop. Several nodes
// may share a loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "quincunx/collectives/bootstrap/event_loop.h"
#include "quincunx/collectives/bootstrap/stream.h"
#include "quincunx/collectives/bootstrap/tree_node.h"

namespace qx::collectives {

// All methods are called on the loop's thread, or before it has begun.
class TreeDriver {
 public:
  using Clock = EventLoop::Clock;
  // Gets the actions that are no socket's: kLookUpRoot, kReady, kFailed, kPeerDied, kResolved, kQuery and kAnswers.
  // Called from within the methods below and from events; it must not call them.
  using Handler = std::function<void(TreeAction)>;

  TreeDriver(EventLoop& loop, std::unique_ptr<TreeNode> node, std::shared_ptr<const Credentials> credentials,
             Handler handler);
  ~TreeDriver();
  TreeDriver(const TreeDriver&) = delete;
  TreeDriver& operator=(const TreeDriver&) = delete;

  // Listens on the node's local endpoint, where that is a name, and starts the node.
  Status start();
  // What is known to those that can read the store; to be set before a root's address is given to the node. The others
  // know it once all ranks are there.
  void set_token(std::string token) { node_->set_token(std::move(token)); }
  const std::string& token() const { return node_->token(); }
  // What this rank shows on a connection for the tree.
  Proof proof(bool connects) const;
  // A TCP connection for the tree that was accepted and is open.
  void adopt(std::shared_ptr<Stream> stream);

  void on_root_found(int rank, std::vector<std::string> endpoints);
  void resolve(int rank, bool afresh);
  void answer(int asker, uint32_t query, std::span<const std::byte> payload);
  void report_dead(int rank, std::string_view reason);
  // Says goodbye; `is_drained` tells when the last bytes have left.
  void leave();
  bool is_drained() const;

  Clock::time_point next_timer() const;
  // Does what is due.
  void on_timer(Clock::time_point now);

  const TreeNode& node() const { return *node_; }
  uint64_t num_dropped() const { return num_dropped_ + node_->statistics().num_dropped; }
  // In a child after fork.
  void close_descriptors();

 private:
  // A connection that is to be closed when the peer has read what was sent.
  struct Closing {
    std::shared_ptr<Stream> stream;
    Clock::time_point deadline;
  };
  // Carries out what the node has come to want.
  void drain();
  void carry_out(TreeAction action);
  void bind_host(const std::string& name);
  void watch_listener(const Socket& listener);
  // Takes those that wait at the listener as long as there is room; the others stay in its queue.
  void admit(const Socket& listener);
  void admit_waiting(Clock::time_point now);
  bool has_room() const;
  void connect(TreeConnection id, const std::string& endpoint);
  void close(TreeConnection id);
  Stream::Events events_of(TreeConnection id);

  EventLoop& loop_;
  const std::unique_ptr<TreeNode> node_;
  const std::shared_ptr<const Credentials> credentials_;
  const Handler handler_;
  Socket host_listener_, local_listener_;
  std::unordered_map<TreeConnection, std::shared_ptr<Stream>> streams_;
  std::vector<Closing> closing_;
  bool is_full_ = false;                                      // somebody may have found no room, and waits in a queue
  Clock::time_point next_look_ = Clock::time_point::max();    // whether a stranger is to make room
  Clock::time_point next_accept_ = Clock::time_point::max();  // after one that failed
  uint64_t num_dropped_ = 0;
  bool draining_ = false;
};

}  // namespace qx::collectives
