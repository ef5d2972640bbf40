// Opens the links of a rank when they are needed: through the memory of the host where both ranks have joined it, over
// TCP otherwise. TCP links are opened by the higher rank of two: a lower one that needs one first connects, shows who
// it is and goes, upon which the higher one comes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quincunx/collectives/bootstrap/event_loop.h"
#include "quincunx/collectives/bootstrap/rank_record.h"
#include "quincunx/collectives/bootstrap/stream.h"
#include "quincunx/collectives/engine.h"
#include "quincunx/collectives/transport/host_memory.h"
#include "quincunx/collectives/transport/shared_memory.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives {

class PeerLinks final : public LinkProvider {
 public:
  using Clock = EventLoop::Clock;
  // Called on the loop's thread.
  struct Needs {
    // Then on_record or on_no_record. `afresh`: the record that is known has led nowhere.
    std::function<void(int rank, bool afresh)> resolve;
    std::function<void(int rank, const std::string& reason)> lost;  // the connection has ended without a goodbye
  };

  PeerLinks(EventLoop& loop, Engine& engine, RankRecord own, uint64_t job_id,
            std::shared_ptr<const Credentials> credentials, Needs needs);
  ~PeerLinks() override;

  // --- under the engine's lock, any thread
  void want(int rank) override;
  void look() override;
  // `own` is this rank's segment within it.
  void use_memory(std::shared_ptr<HostMemory> memory, std::unique_ptr<Segment> own);
  Segment* own_segment() { return own_segment_.get(); }
  const HostMemory* memory() const { return memory_.get(); }
  // Ranks of this host that want a link from now on are told that this one has left, and links that end are no deaths.
  void leave();

  // --- the loop's thread, without the engine's lock
  void on_record(int rank, const RankRecord& record);
  // kNotFound: it has left.
  void on_no_record(int rank, const Status& status);
  // What this rank shows to whoever connects for a link.
  Proof proof_as_acceptor() const;
  // An open connection for a link, or a knock, that was accepted.
  void adopt(const std::shared_ptr<Stream>& stream);
  Clock::time_point next_timer() const;
  void on_timer(Clock::time_point now);
  // Lets what was sent leave, until the deadline.
  void finish(Clock::time_point deadline);
  // In a child after fork.
  void close_descriptors();

 private:
  struct Attempt {
    RankRecord record;
    std::vector<std::string> endpoints;
    size_t candidate = 0;
    std::shared_ptr<Stream> stream;
    bool is_resolved = false;
    Clock::time_point due = Clock::time_point::max();  // to give up, or to begin
    std::chrono::milliseconds backoff{0};
  };
  struct TcpPeer {
    Socket socket;
    TcpLink* link = nullptr;
  };

  void attach_memory(int rank, bool is_caller);
  // From the loop's thread: who asks for a link may be in the middle of an operation that would end.
  void lose_soon(int rank, const Status& status);
  void begin(int rank);
  void connect(int rank);
  void on_open(int rank);
  void on_failure(int rank, std::string_view reason);
  void tell(int rank, std::string text);
  void attach_tcp(int rank, Stream& stream);
  void on_link_event(int rank);
  bool has_link(int rank);

  EventLoop& loop_;
  Engine& engine_;
  const RankRecord own_;
  const uint64_t job_id_;
  const std::shared_ptr<const Credentials> credentials_;
  const Needs needs_;
  std::shared_ptr<HostMemory> memory_;
  std::unique_ptr<Segment> own_segment_;
  bool leaves_ = false;
  std::map<int, Attempt> attempts_;   // the loop's thread only
  std::map<int, TcpPeer> tcp_peers_;  // the loop's thread only
};

}  // namespace qx::collectives
