// Sends and receives of one group. A small message travels at once and waits at the receiver; a large one is announced
// and moves when its receive has been posted, so that it never stands in the way of other traffic.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "quincunx/collectives/operation_state.h"
#include "quincunx/collectives/peer_channel.h"

namespace qx::collectives {

class PointToPoint {
 public:
  explicit PointToPoint(Group& group) : group_(group) {}

  void send(OperationPtr operation, const Buffer& buffer);
  void receive(OperationPtr operation, const Buffer& buffer);

  void fail(const Status& status);
  void on_peer_up(int rank);
  void on_peer_lost(int rank);
  OperationPtr first_due_by(Clock::time_point time) const;
  Status on_frame(int rank, const FrameHeader& header, std::span<const std::byte> payload);
  Result<std::optional<int64_t>> on_stream(int rank, const FrameHeader& header, Link& link, int64_t limit);
  std::optional<OutgoingFrame> next_frame(int rank);

 private:
  struct Send {
    OperationPtr operation;
    Buffer buffer;
    uint64_t id = 0;
    bool announced = false;
    bool granted = false;  // the receive is posted
    int64_t sent_bytes = 0;
  };
  struct Receive {
    OperationPtr operation;
    Buffer buffer;
    int64_t received_bytes = 0;
  };
  // A message that came before its receive.
  struct Arrived {
    int source = 0;
    FrameHeader header;
    std::vector<std::byte> payload;
  };
  using Key = std::pair<int, uint64_t>;  // source and the sender's number

  void announce(Send& send);
  // Gives the message to the receive; the receive ends at once or waits for its data.
  void match(Receive receive, const Arrived& message);
  static bool fits(const Receive& receive, int source, int32_t tag);
  void grant_or_refuse(int rank, FrameKind kind, uint64_t id, const std::string& text = {});

  Group& group_;
  uint64_t next_id_ = 0;
  std::list<std::unique_ptr<Send>> sends_;
  std::deque<Receive> receives_;
  std::map<Key, Receive> moving_;
  std::deque<Arrived> arrived_;
};

}  // namespace qx::collectives
