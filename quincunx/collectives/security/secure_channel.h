// A byte stream whose two ends prove to each other who they are before anything else is said, and which may be
// encrypted. It does no input or output itself: whoever drives it hands in the bytes of a connection and sends what it
// wants sent. Used in front of the bootstrap, the store and TCP links between hosts.
//
//   auto channel = SecureChannel::create(credentials, {.purpose = ..., .connects = true}, now + seconds(5));
//   send all of channel->take_outgoing(); hand all that arrives to channel->receive(); until state() is not kPending
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/security/secret.h"

namespace qx::collectives {

class TlsContext;

// What a program names in place of the environment, as texts; nullopt: not given.
struct NamedCredentials {
  std::optional<std::string> secret = {}, secret_file = {};
  std::optional<std::string> tls_certificate_file = {}, tls_key_file = {}, tls_authority_file = {};
};

// What a process shows and asks for. Copies are cheap to use on many connections.
struct Credentials {
  Secret secret;                          // empty: none was set, and Identity::token stands for it
  std::shared_ptr<const TlsContext> tls;  // null: connections are not encrypted

  // Reads QX_MCCL_SECRET_FILE, QX_MCCL_SECRET, QX_MCCL_TLS_CERT, QX_MCCL_TLS_KEY and QX_MCCL_TLS_CA.
  static Result<Credentials> from_environment();
  // Null where nothing is named. Errors call what is wrong by its name above, behind `prefix`.
  static Result<std::shared_ptr<const Credentials>> from_named(const NamedCredentials& named,
                                                               const std::string& prefix = {});
};

enum class Purpose : uint8_t { kBootstrap = 1, kLink, kStore };

// Both ends state theirs, and each proof covers both: what was recorded for another rank, job or purpose proves
// nothing.
struct Identity {
  Purpose purpose = Purpose::kBootstrap;
  bool connects = false;  // this end opened the connection
  int rank = 0;
  int peer_rank = -1;   // the only rank that is accepted; -1: any
  uint64_t job_id = 0;  // of group, generation and world size
  // Known to those that can read the store; it is the secret where the credentials have none. Both may be empty: then
  // the channel only tells jobs, ranks and purposes apart.
  std::string token;
};

class SecureChannel {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State { kPending, kAuthenticated, kRefused };

  static Result<std::unique_ptr<SecureChannel>> create(const Credentials& credentials, const Identity& identity,
                                                       Clock::time_point deadline);
  virtual ~SecureChannel() = default;
  SecureChannel(const SecureChannel&) = delete;
  SecureChannel& operator=(const SecureChannel&) = delete;

  State state() const { return state_; }
  // Why the peer was refused: what was wrong and what was expected. It never holds bytes of a secret.
  const Status& refusal() const { return refusal_; }
  // Proven once the state is kAuthenticated; the rank that the peer claims, or -1, before.
  virtual int peer_rank() const = 0;
  // When a pending peer is to be refused; the driver then calls expire.
  Clock::time_point deadline() const { return deadline_; }
  void expire(Clock::time_point now);

  // Bytes of the connection, in any pieces. A peer that is refused has bytes to be sent too: they tell it why.
  virtual void receive(std::span<const std::byte> bytes) = 0;
  // Bytes for the connection; none are left behind.
  virtual std::vector<std::byte> take_outgoing() = 0;

  // From kAuthenticated on. What is to reach the peer:
  virtual void send(std::span<const std::byte> bytes) = 0;
  // And what the peer has sent.
  virtual std::vector<std::byte> take_received() = 0;
  // True where the bytes of the connection are those of send and take_received from now on: after one last
  // take_outgoing and take_received the connection can be used without the channel.
  virtual bool is_transparent() const = 0;

 protected:
  explicit SecureChannel(Clock::time_point deadline) : deadline_(deadline) {}
  void set_authenticated() { state_ = State::kAuthenticated; }
  // Final: later bytes are ignored.
  void refuse(Status reason);

 private:
  const Clock::time_point deadline_;
  State state_ = State::kPending;
  Status refusal_;
};

}  // namespace qx::collectives
