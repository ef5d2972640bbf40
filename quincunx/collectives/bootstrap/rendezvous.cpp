#include "quincunx/collectives/bootstrap/rendezvous.h"

#include <algorithm>

namespace qx::collectives {
namespace {

constexpr std::chrono::milliseconds kFirstBackoff{20};
constexpr std::chrono::milliseconds kLongestBackoff{1000};

}  // namespace

Rendezvous::Rendezvous(PeerRecord own) : own_(std::move(own)), peers_(static_cast<size_t>(own_.world_size)) {
  peers_[static_cast<size_t>(own_.rank)].phase = PeerPhase::kUp;
}

bool Rendezvous::wants(int rank, bool external) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return external ? peer.phase == PeerPhase::kNeedsExternal : rank != own_.rank && !peer.record.has_value();
}

std::optional<Rendezvous::Fetch> Rendezvous::next_fetch() {
  for (int step = 0; step < own_.world_size; ++step) {
    const int rank = (next_turn_ + step) % own_.world_size;
    for (const bool external : {false, true}) {
      if (!wants(rank, external)) continue;
      next_turn_ = rank + 1;
      return Fetch{rank, external};
    }
  }
  return std::nullopt;
}

bool Rendezvous::take_publish_external() {
  if (!saw_other_host_ || published_external_ || own_.is_external) return false;
  published_external_ = true;
  return true;
}

bool Rendezvous::store_is_done() const {
  for (int rank = 0; rank < own_.world_size; ++rank) {
    if (wants(rank, false) || wants(rank, true)) return false;
  }
  return own_.is_external || published_external_ || !saw_other_host_;
}

Status Rendezvous::on_record(int rank, const std::string& text) {
  QX_ASSIGN_OR_RETURN(PeerRecord record, PeerRecord::decode(text));
  if (record.rank != rank) {
    return failed_precondition("rank " + std::to_string(rank) + " published the record of rank " +
                               std::to_string(record.rank));
  }
  if (record.world_size != own_.world_size) {
    return failed_precondition("rank " + std::to_string(rank) + " has world size " + std::to_string(record.world_size) +
                               ", this rank has " + std::to_string(own_.world_size));
  }
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.record) return ok_status();
  const bool loopback = own_.shares_loopback(record);
  if (!loopback) saw_other_host_ = true;
  peer.record = record;
  if (peer.phase == PeerPhase::kUp) return ok_status();
  if (rank > own_.rank) {
    peer.phase = PeerPhase::kToAccept;
  } else if (!loopback && !record.is_external) {
    peer.phase = PeerPhase::kNeedsExternal;
  } else {
    prepare_connect(rank, record.endpoint);
  }
  return ok_status();
}

Status Rendezvous::on_external(int rank, const std::string& endpoint) {
  if (wants(rank, true)) prepare_connect(rank, endpoint);
  return ok_status();
}

void Rendezvous::prepare_connect(int rank, const std::string& endpoint) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  peer.phase = PeerPhase::kToConnect;
  peer.endpoint = endpoint;
  peer.next_attempt = Clock::time_point::min();
}

std::vector<Rendezvous::Connect> Rendezvous::due_connects(Clock::time_point now) {
  std::vector<Connect> due;
  for (int rank = 0; rank < own_.rank; ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (peer.phase != PeerPhase::kToConnect || peer.next_attempt > now) continue;
    peer.phase = PeerPhase::kConnecting;
    due.push_back({rank, peer.endpoint});
  }
  return due;
}

std::optional<Rendezvous::Clock::time_point> Rendezvous::next_attempt() const {
  std::optional<Clock::time_point> first;
  for (const Peer& peer : peers_) {
    if (peer.phase != PeerPhase::kToConnect) continue;
    first = first ? std::min(*first, peer.next_attempt) : peer.next_attempt;
  }
  return first;
}

void Rendezvous::on_connect_failed(int rank, const std::string& reason, Clock::time_point now) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.phase != PeerPhase::kConnecting) return;
  peer.last_error = reason;
  peer.backoff = std::clamp(peer.backoff * 2, kFirstBackoff, kLongestBackoff);
  peer.next_attempt = now + peer.backoff;
  peer.phase = PeerPhase::kToConnect;
}

Status Rendezvous::check_hello(const PeerRecord& from, const std::string& shown_token) const {
  if (shown_token != own_.token) return data_loss("hello without this rank's token");
  if (from.world_size != own_.world_size) return data_loss("hello from a job of another size");
  if (from.rank <= own_.rank) return data_loss("hello from a rank that should be connected to");
  if (peers_[static_cast<size_t>(from.rank)].phase == PeerPhase::kUp) return data_loss("a second hello of one rank");
  return ok_status();
}

void Rendezvous::on_up(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.phase == PeerPhase::kUp) return;
  peer.phase = PeerPhase::kUp;
  ++num_up_;
}

const PeerRecord* Rendezvous::record_of(int rank) const {
  const auto& record = peers_[static_cast<size_t>(rank)].record;
  return record ? &*record : nullptr;
}

std::string Rendezvous::describe(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const std::string error = peer.last_error.empty() ? "" : ": " + peer.last_error;
  switch (peer.phase) {
    case PeerPhase::kUnknown: return "no address published" + (store_error_.empty() ? "" : "; store: " + store_error_);
    case PeerPhase::kNeedsExternal: return "on another host, no address for other hosts published";
    case PeerPhase::kToConnect:
    case PeerPhase::kConnecting: return "connecting to " + peer.endpoint + error;
    case PeerPhase::kToAccept:
      return "address published, pid " + std::to_string(peer.record->pid) + ", has not connected";
    case PeerPhase::kUp: return "connected";
  }
  return {};
}

}  // namespace qx::collectives
