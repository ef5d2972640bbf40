#include "quincunx/collectives/algorithms/direct_exchange.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "quincunx/collectives/algorithms/ways.h"

namespace qx::collectives {
namespace {

std::byte* bytes_of(const Buffer& buffer) { return static_cast<std::byte*>(buffer.data); }

// Slices of all_reduce begin at multiples of a cache line, whatever the element: no line is written by two ranks.
constexpr int64_t kSliceAlignment = 64;

struct Range {
  int64_t begin = 0;
  int64_t size = 0;
};

Range slice_of(int64_t size_bytes, int rank, int world_size) {
  const int64_t share = (size_bytes + world_size - 1) / world_size;
  const int64_t step = (share + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
  const int64_t begin = std::min(size_bytes, rank * step);
  return {begin, std::min(size_bytes, begin + step) - begin};
}

}  // namespace

DirectExchange::DirectExchange(const Call& call, std::vector<Buffer> inputs, std::vector<Buffer> outputs, int rank,
                               int world_size)
    : call_(call),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      rank_(rank),
      world_size_(world_size),
      peers_(static_cast<size_t>(world_size)) {
  const auto each_peer = [&](auto&& act) {
    for (int p = 0; p < world_size; ++p) {
      if (p != rank) act(p, static_cast<size_t>(p));
    }
  };
  const auto own = static_cast<size_t>(rank);
  const bool is_root = rank == call.root;
  switch (call.operation) {
    case Operation::kBroadcast:
      if (is_root)
        each_peer([&](int p, size_t) { send(p, inputs_[0]); });
      else
        receive_into(call.root, inputs_[0]);
      break;
    case Operation::kAllReduce: plan_all_reduce(inputs_[0]); break;
    case Operation::kReduce:
      if (is_root)
        plan_reduction(inputs_[0], bytes_of(outputs_[0]));
      else
        send(call.root, inputs_[0]);
      break;
    case Operation::kAllGather:
      each_peer([&](int p, size_t i) {
        send(p, inputs_[0]);
        receive_into(p, outputs_[i]);
      });
      copy_own(inputs_[0], outputs_[own]);
      break;
    case Operation::kGather:
      if (!is_root)
        send(call.root, inputs_[0]);
      else
        each_peer([&](int p, size_t i) { receive_into(p, outputs_[i]); });
      if (is_root) copy_own(inputs_[0], outputs_[own]);
      break;
    case Operation::kScatter:
      if (!is_root)
        receive_into(call.root, outputs_[0]);
      else
        each_peer([&](int p, size_t i) { send(p, inputs_[i]); });
      if (is_root) copy_own(inputs_[own], outputs_[0]);
      break;
    case Operation::kReduceScatter:
      each_peer([&](int p, size_t i) { send(p, inputs_[i]); });
      plan_reduction(inputs_[own], bytes_of(outputs_[0]));
      break;
    case Operation::kAllToAll:
      each_peer([&](int p, size_t i) {
        send(p, inputs_[i]);
        receive_into(p, outputs_[i]);
      });
      copy_own(inputs_[own], outputs_[own]);
      break;
    default: break;
  }
  count_remaining();
}

DirectExchange::DirectExchange(const Moves& moves, int rank, int world_size)
    : call_{moves.operation, DType::kUInt8, moves.reduction, -1, 0, {}},
      rank_(rank),
      world_size_(world_size),
      peers_(static_cast<size_t>(world_size)) {
  for (const Moves::Move& move : moves.sends) send(move.peer, move.buffer);
  for (const Moves::Move& move : moves.receives) receive_into(move.peer, move.buffer);
  if (moves.reduced) plan_reduction(*moves.reduced);
  count_remaining();
}

void DirectExchange::count_remaining() {
  for (const Peer& peer : peers_) {
    for (int s = 0; s < 2; ++s) remaining_bytes_ += peer.out[s].size + peer.in[s].size;
  }
}

void DirectExchange::send(int peer, const Buffer& buffer) {
  Outgoing& out = peers_[static_cast<size_t>(peer)].out[0];
  out.data = bytes_of(buffer);
  out.size = buffer.size_bytes();
  // A reduction of three or more lets a peer run ahead by one window only: see Reducer.
  out.allowed = call_.reduces() && world_size_ > 2 ? std::min(out.size, kReduceWindowBytes) : out.size;
}

void DirectExchange::receive_into(int peer, const Buffer& buffer) {
  Incoming& in = peers_[static_cast<size_t>(peer)].in[0];
  in.data = bytes_of(buffer);
  in.size = buffer.size_bytes();
}

void DirectExchange::copy_own(const Buffer& from, const Buffer& to) {
  copy_from_ = from;
  copy_to_ = to;
}

void DirectExchange::plan_reduction(const Buffer& own, std::byte* output) {
  plan_reduction({bytes_of(own), output, own.size_bytes(), own.dtype});
}

void DirectExchange::plan_reduction(const Reducer::Slice& slice) {
  reducer_.emplace(call_.reduction, slice, rank_, world_size_);
  for (int p = 0; p < world_size_; ++p) {
    if (p != rank_) peers_[static_cast<size_t>(p)].in[0].size = slice.size_bytes;
  }
  remaining_bytes_ += slice.size_bytes;
}

void DirectExchange::plan_all_reduce(const Buffer& buffer) {
  const int64_t size = buffer.size_bytes();
  // Only where inputs travel with the calls: the reduction overwrites what is sent.
  if ((size <= kInlineBytes && world_size_ <= largest_flat_group()) || world_size_ == 1) {
    for (int p = 0; p < world_size_; ++p) {
      if (p != rank_) send(p, buffer);
    }
    return plan_reduction(buffer, bytes_of(buffer));
  }
  const int64_t element = dtype_size_bytes(buffer.dtype);
  const auto part = [&](int rank) {
    const Range range = slice_of(size, rank, world_size_);
    return Buffer{bytes_of(buffer) + range.begin, range.size / element, buffer.dtype};
  };
  const Buffer own = part(rank_);
  plan_reduction(own, bytes_of(own));
  for (int p = 0; p < world_size_; ++p) {
    if (p == rank_) continue;
    const Buffer theirs = part(p);
    send(p, theirs);
    Peer& peer = peers_[static_cast<size_t>(p)];
    peer.out[1].data = bytes_of(own);
    peer.out[1].size = own.size_bytes();
    peer.in[1].data = bytes_of(theirs);
    peer.in[1].size = theirs.size_bytes();
  }
}

std::span<const std::byte> DirectExchange::inline_input(int peer) const {
  const Outgoing& out = peers_[static_cast<size_t>(peer)].out[0];
  if (out.size > kInlineBytes) return {};
  return {out.data, static_cast<size_t>(out.size)};
}

Status DirectExchange::begin(std::span<const std::span<const std::byte>> inlined) {
  if (copy_from_.count > 0 && copy_from_.data != copy_to_.data) {
    std::memmove(copy_to_.data, copy_from_.data, static_cast<size_t>(copy_from_.size_bytes()));
  }
  const int64_t before = reducer_ ? reducer_->reduced_bytes() : 0;
  for (int p = 0; p < world_size_ && !inlined.empty(); ++p) {
    if (p == rank_) continue;
    Peer& peer = peers_[static_cast<size_t>(p)];
    if (peer.out[0].size <= kInlineBytes) {
      remaining_bytes_ -= peer.out[0].size;
      peer.out[0].sent = peer.out[0].size;
    }
    const std::span<const std::byte> input = inlined[static_cast<size_t>(p)];
    const int64_t expected = peer.in[0].size <= kInlineBytes ? peer.in[0].size : 0;
    if (static_cast<int64_t>(input.size()) != expected) {
      return data_loss("rank " + std::to_string(p) + " sent " + std::to_string(input.size()) +
                       " bytes with its call, expected " + std::to_string(expected));
    }
    if (expected == 0) continue;
    if (peer.in[0].data == nullptr)
      reducer_->accept(p, input);
    else
      std::memcpy(peer.in[0].data, input.data(), input.size());
    peer.in[0].received = expected;
    remaining_bytes_ -= expected;
  }
  if (reducer_) {
    reducer_->advance();
    after_reducing(before);
  }
  return ok_status();
}

std::optional<Exchange::Chunk> DirectExchange::next_chunk(int peer) const {
  const Peer& state = peers_[static_cast<size_t>(peer)];
  for (const uint8_t stream : {uint8_t{1}, uint8_t{0}}) {
    const Outgoing& out = state.out[stream];
    if (out.offered) continue;
    const int64_t ready = std::min(out.allowed - out.sent, kMaxStreamBytes);
    if (ready > 0) return Chunk{stream, 0, {out.data + out.sent, static_cast<size_t>(ready)}};
  }
  return std::nullopt;
}

void DirectExchange::mark_sent(int peer, const Chunk& chunk) {
  const auto size = static_cast<int64_t>(chunk.bytes.size());
  peers_[static_cast<size_t>(peer)].out[chunk.stream].sent += size;
  remaining_bytes_ -= size;
}

int64_t DirectExchange::receive(int peer, int32_t, uint8_t stream, Link& link, int64_t limit) {
  Incoming& in = peers_[static_cast<size_t>(peer)].in[stream];
  if (limit > in.size - in.received) return -1;
  int64_t taken = 0;
  if (in.data == nullptr) {
    const int64_t before = reducer_->reduced_bytes();
    taken = reducer_->receive(peer, link, limit);
    after_reducing(before);
  } else {
    taken = static_cast<int64_t>(link.read(in.data + in.received, static_cast<size_t>(limit)));
  }
  in.received += taken;
  remaining_bytes_ -= taken;
  return taken;
}

void DirectExchange::after_reducing(int64_t before) {
  remaining_bytes_ -= reducer_->reduced_bytes() - before;
  const int64_t reduced = reducer_->reduced_bytes();
  for (int p = 0; p < world_size_; ++p) {
    Outgoing& results = peers_[static_cast<size_t>(p)].out[1];
    results.allowed = std::min(results.size, reduced);
    if (results.offered) announce(p);
    if (peers_[static_cast<size_t>(p)].in[0].in_place != nullptr) read(p, 0, reduced - before);
  }
}

void DirectExchange::add_credit(int peer, int32_t, int64_t reduced_bytes) {
  Outgoing& out = peers_[static_cast<size_t>(peer)].out[0];
  out.allowed = std::max(out.allowed, std::min(out.size, reduced_bytes + kReduceWindowBytes));
}

std::vector<Exchange::Notice> DirectExchange::take_notices() {
  const int64_t reduced = reducer_ && reducer_->needs_credit() ? reducer_->reduced_bytes() : 0;
  // Once each time a quarter of the window has been reduced.
  if (reduced - credited_bytes_ >= kReduceWindowBytes / 4) {
    credited_bytes_ = reduced;
    for (int p = 0; p < world_size_; ++p) {
      if (p != rank_) notices_.push_back({p, FrameKind::kCredit, 0, 0, reduced});
    }
  }
  return std::exchange(notices_, {});
}

int64_t DirectExchange::missing_from(int peer) const {
  const Peer& state = peers_[static_cast<size_t>(peer)];
  return state.in[0].size - state.in[0].received + state.in[1].size - state.in[1].received;
}

int64_t DirectExchange::unsent_to(int peer) const {
  const Peer& state = peers_[static_cast<size_t>(peer)];
  return state.out[0].size - state.out[0].sent + state.out[1].size - state.out[1].sent;
}

}  // namespace qx::collectives
