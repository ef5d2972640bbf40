// The part of DirectExchange that reads the memory of peers where it lies.
#include <algorithm>
#include <cstring>

#include "quincunx/collectives/algorithms/direct_exchange.h"

namespace qx::collectives {
namespace {

// Read in one look at the links, so that other groups and peers get their turn, and small enough that results are still
// in a cache when the peer reads them.
constexpr int64_t kPieceBytes = 256 << 10;

}  // namespace

std::span<const std::byte> DirectExchange::to_be_sent(int peer, uint8_t stream) const {
  const Outgoing& out = peers_[static_cast<size_t>(peer)].out[stream];
  if (out.sent > 0 || out.offered) return {};
  return {out.data, static_cast<size_t>(out.size)};
}

int32_t DirectExchange::offer(int peer, uint8_t stream) {
  peers_[static_cast<size_t>(peer)].out[stream].offered = true;
  if (stream == 1) announce(peer);
  return 0;
}

void DirectExchange::refused(int peer, int32_t, uint8_t stream) {
  peers_[static_cast<size_t>(peer)].out[stream].offered = false;
}

void DirectExchange::announce(int peer) {
  Outgoing& results = peers_[static_cast<size_t>(peer)].out[1];
  if (results.allowed == results.announced) return;
  if (results.allowed < results.size && results.allowed - results.announced < kPieceBytes) return;
  results.announced = results.allowed;
  notices_.push_back({peer, FrameKind::kReady, 1, 0, results.allowed});
}

bool DirectExchange::expects(const Incoming& in, int64_t size) const {
  return size > 0 && size == in.size && in.received == 0 && in.in_place == nullptr && !in.memory;
}

bool DirectExchange::read_from(int peer, int32_t, uint8_t stream, const std::byte* data, int64_t size) {
  Incoming& in = peers_[static_cast<size_t>(peer)].in[stream];
  if (!expects(in, size)) return false;
  in.in_place = data;
  in.ready = stream == 0 ? size : 0;
  ++num_in_place_;
  if (in.data == nullptr) reducer_->read_from(peer, data);
  return true;
}

bool DirectExchange::read_from(int peer, int32_t, const PeerMemory& memory, int64_t size) {
  Incoming& in = peers_[static_cast<size_t>(peer)].in[0];
  if (in.data == nullptr || !expects(in, size)) return false;
  in.memory = memory;
  in.ready = size;
  ++num_in_place_;
  return true;
}

void DirectExchange::on_ready(int peer, int32_t, int64_t size) {
  Incoming& in = peers_[static_cast<size_t>(peer)].in[1];
  in.ready = std::clamp(size, in.ready, in.size);
}

bool DirectExchange::on_taken(int peer, int32_t, uint8_t stream) {
  Outgoing& out = peers_[static_cast<size_t>(peer)].out[stream];
  if (!out.offered || out.sent > 0) return false;
  out.sent = out.size;
  remaining_bytes_ -= out.size;
  return true;
}

void DirectExchange::read(int peer, uint8_t stream, int64_t num_bytes) {
  Incoming& in = peers_[static_cast<size_t>(peer)].in[stream];
  in.received += num_bytes;
  if (in.in_place != nullptr) bytes_read_in_place_ += num_bytes;
  remaining_bytes_ -= num_bytes;
  if (num_bytes == 0 || in.received < in.size) return;
  --num_in_place_;
  notices_.push_back({peer, FrameKind::kTaken, stream, 0, 0});
}

int64_t DirectExchange::copy_piece(int peer, uint8_t stream) {
  Incoming& in = peers_[static_cast<size_t>(peer)].in[stream];
  auto size = static_cast<size_t>(std::min(kPieceBytes, in.ready - in.received));
  if (in.data == nullptr || size == 0) return 0;
  if (in.in_place != nullptr)
    std::memcpy(in.data + in.received, in.in_place + in.received, size);
  else
    size = in.memory->read(in.received, in.data + in.received, size);
  read(peer, stream, static_cast<int64_t>(size));
  return static_cast<int64_t>(size);
}

bool DirectExchange::read_in_place() {
  if (num_in_place_ == 0) return false;
  bool moved = false;
  if (reducer_) {
    const int64_t before = reducer_->reduced_bytes();
    reducer_->advance(kPieceBytes);
    moved = reducer_->reduced_bytes() > before;
    after_reducing(before);
  }
  for (int p = 0; p < world_size_; ++p) {
    for (const uint8_t stream : {uint8_t{1}, uint8_t{0}}) {
      const Incoming& in = peers_[static_cast<size_t>(p)].in[stream];
      if (in.in_place != nullptr || in.memory) moved = copy_piece(p, stream) > 0 || moved;
    }
  }
  return moved;
}

}  // namespace qx::collectives
