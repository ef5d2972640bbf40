// Where TCP connections of strangers come in: accepts them, lets them prove who they are within their time, and hands
// them over. Those that do not speak the protocol are dropped and counted, and hold up nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quincunx/collectives/bootstrap/event_loop.h"
#include "quincunx/collectives/bootstrap/stream.h"

namespace qx::collectives {

// All methods are called on the loop's thread, or before it has begun.
class FrontDoor {
 public:
  using Clock = EventLoop::Clock;
  // An open stream; its events are to be set.
  using Taker = std::function<void(std::shared_ptr<Stream>)>;

  FrontDoor(EventLoop& loop, Stream::ProofFor proof_for, Taker taker)
      : loop_(loop), proof_for_(std::move(proof_for)), taker_(std::move(taker)) {}
  ~FrontDoor() { close(); }
  FrontDoor(const FrontDoor&) = delete;
  FrontDoor& operator=(const FrontDoor&) = delete;

  // A bound socket. Takes connections from it, once it listens.
  void add(Socket socket, bool listens);
  // The sockets that did not listen do from now on.
  Status open_all();
  // Nobody will come any more: gives the descriptors back.
  void close();

  Clock::time_point next_timer() const;
  void on_timer(Clock::time_point now);
  uint64_t num_dropped() const { return num_dropped_; }
  // Why the last one that spoke the protocol was not let in; empty where there was none.
  const std::string& refusal() const { return refusal_; }
  // In a child after fork.
  void close_descriptors();

 private:
  struct Door {
    Socket socket;
    bool listens = false;
  };
  void watch(const Door& door);
  void accept_all(int listener);
  void drop(const Stream* stream);

  EventLoop& loop_;
  const Stream::ProofFor proof_for_;
  const Taker taker_;
  std::vector<Door> doors_;
  std::vector<std::shared_ptr<Stream>> strangers_;            // oldest first
  Clock::time_point next_accept_ = Clock::time_point::max();  // after one that failed
  uint64_t num_dropped_ = 0;
  std::string refusal_;
};

}  // namespace qx::collectives
