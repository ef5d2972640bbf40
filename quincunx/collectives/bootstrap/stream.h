// A connection of an event loop: it connects or was accepted, proves who it is, and then carries bytes. Endpoints are
// numeric ("10.0.0.1:4711") or abstract unix names ("@name"). Over TCP both ends prove who they are; on a unix socket
// the kernel tells whether the peer is a process of the same user.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/bootstrap/event_loop.h"
#include "quincunx/collectives/security/secure_channel.h"
#include "quincunx/collectives/transport/tcp.h"

namespace qx::collectives {

// What this end shows and asks for.
struct Proof {
  std::shared_ptr<const Credentials> credentials;
  Identity identity;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  using Clock = EventLoop::Clock;
  using Bytes = std::span<const std::byte>;
  // Calls come on the loop's thread, never from within a method of the stream. After `closed`, or when the last owner
  // lets go of the stream, no more come.
  struct Events {
    std::function<void()> opened;  // both ends are proven
    std::function<void(Bytes)> received;
    std::function<void(std::string_view reason)> closed;
  };
  // The first byte of a TCP connection names its purpose: what is shown to whoever comes for it; nullopt: dropped.
  using ProofFor = std::function<std::optional<Proof>(Purpose)>;

  // Starts to connect. `proof` is used over TCP only.
  static Result<std::shared_ptr<Stream>> connect(EventLoop& loop, const std::string& endpoint, Proof proof,
                                                 Events events);
  // A connection that was accepted by a TCP listener. To be dropped by the owner at the deadline.
  static std::shared_ptr<Stream> accept(EventLoop& loop, Socket socket, ProofFor proof_for, Clock::time_point deadline,
                                        Events events);
  // By a unix listener: open at once. kFailedPrecondition where the peer is a process of another user.
  static Result<std::shared_ptr<Stream>> accept_local(EventLoop& loop, Socket socket, Events events);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void set_events(Events events) { events_ = std::move(events); }
  void send(Bytes bytes);
  // Sends what has waited for room, or for the end of an event, as far as it goes.
  void flush();
  bool has_unsent() const { return !outgoing_.empty(); }
  bool is_open() const { return state_ == State::kOpen; }
  // A unix socket.
  bool is_local() const { return is_local_; }
  // Of an accepted connection, once its first byte has come.
  Purpose purpose() const { return purpose_; }
  // Proven, once the stream is open over TCP.
  int peer_rank() const { return channel_ ? channel_->peer_rank() : -1; }
  Clock::time_point deadline() const { return deadline_; }
  // No more bytes are sent or read. The socket stays open until the object goes.
  void shut_down_sending();

  // What a link needs. The stream is of no use afterwards.
  struct Parts {
    Socket socket;
    std::unique_ptr<SecureChannel> channel;
  };
  Parts release();
  // In a child after fork.
  void close_descriptor() { socket_.reset(); }

 private:
  enum class State { kConnecting, kFirstByte, kProving, kOpen, kClosed };

  Stream(EventLoop& loop, Socket socket, State state, Events events);
  void watch();
  void on_events(uint32_t events);
  Status on_connected();
  void tell_opened();
  void tell_received(Bytes bytes);
  Status begin_proof(const Proof& proof);
  void on_bytes(Bytes bytes);
  void push_raw(Bytes bytes);
  void handle(uint32_t events);
  void close(std::string_view reason);

  EventLoop& loop_;
  Socket socket_;
  State state_;
  Events events_;
  Proof proof_;
  ProofFor proof_for_;
  bool is_local_ = false;
  bool in_event_ = false;  // what is sent leaves together at its end
  Purpose purpose_ = Purpose::kBootstrap;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::unique_ptr<SecureChannel> channel_;
  std::vector<std::byte> outgoing_;
};

}  // namespace qx::collectives
