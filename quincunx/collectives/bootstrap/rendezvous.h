// How ranks find each other, as a state machine that does no input or output itself: whoever drives it fetches,
// publishes and connects as told, and reports what came of it. Every rank reads every record; rank i connects to the
// ranks below it and accepts those above.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/collectives/bootstrap/peer_record.h"

namespace qx::collectives {

class Rendezvous {
 public:
  using Clock = std::chrono::steady_clock;
  enum class PeerPhase {
    kUnknown,        // no record seen
    kNeedsExternal,  // on another host, and its address for other hosts is not known yet
    kToConnect,      // to be connected at next_attempt
    kConnecting,
    kToAccept,  // will connect to us
    kUp,
  };
  struct Connect {
    int rank = 0;
    std::string endpoint;
  };

  explicit Rendezvous(PeerRecord own);

  // What is to be read from the store next; ranks take turns. nullopt: nothing at present.
  struct Fetch {
    int rank = 0;
    bool external = false;
  };
  std::optional<Fetch> next_fetch();
  // True once, when a rank of another host was seen and this rank has published loopback only.
  bool take_publish_external();
  // Nothing more will ever be fetched or published.
  bool store_is_done() const;

  // An error means that the job cannot come up: a record that is none, of another world size or another rank.
  Status on_record(int rank, const std::string& text);
  Status on_external(int rank, const std::string& endpoint);
  void on_store_error(const std::string& message) { store_error_ = message; }

  // Connections to start now, each handed out once.
  std::vector<Connect> due_connects(Clock::time_point now);
  std::optional<Clock::time_point> next_attempt() const;
  void on_connect_failed(int rank, const std::string& reason, Clock::time_point now);
  // A peer's first frame. An error means that the connection is to be dropped.
  Status check_hello(const PeerRecord& from, const std::string& shown_token) const;
  void on_up(int rank);

  bool is_complete() const { return num_up_ == own_.world_size; }
  const PeerRecord& own() const { return own_; }
  const PeerRecord* record_of(int rank) const;
  PeerPhase phase_of(int rank) const { return peers_[static_cast<size_t>(rank)].phase; }
  // "no address published", "connecting to 10.0.0.1:4711: connection refused"
  std::string describe(int rank) const;

 private:
  struct Peer {
    PeerPhase phase = PeerPhase::kUnknown;
    std::optional<PeerRecord> record;
    std::string endpoint;
    std::string last_error;
    Clock::time_point next_attempt;
    std::chrono::milliseconds backoff{0};
  };
  bool wants(int rank, bool external) const;
  void prepare_connect(int rank, const std::string& endpoint);

  const PeerRecord own_;
  std::vector<Peer> peers_;
  int num_up_ = 1;
  int next_turn_ = 0;
  bool saw_other_host_ = false;
  bool published_external_ = false;
  std::string store_error_;
};

}  // namespace qx::collectives
