#include "quincunx/collectives/algorithms/flow_exchange.h"

#include <algorithm>

#include "quincunx/base/check.h"
#include "quincunx/kernels/reduce/reduce.h"

namespace qx::collectives {

FlowExchange::FlowExchange(std::vector<Flow> flows, std::optional<PartialReduction> partial, const Result& result)
    : partial_(partial), result_(result) {
  for (Flow& flow : flows) {
    State& state = flows_.emplace_back();
    state.flow = std::move(flow);
    state.sent.resize(state.flow.to.size());
    QX_CHECK(state.flow.id < kMaxFlows);
    if (state.flow.id >= static_cast<int32_t>(place_of_.size())) {
      place_of_.resize(static_cast<size_t>(state.flow.id) + 1, -1);
    }
    place_of_[static_cast<size_t>(state.flow.id)] = static_cast<int>(flows_.size()) - 1;
    for (size_t b = 0; b < state.flow.to.size(); ++b) {
      const auto peer = static_cast<size_t>(state.flow.to[b]);
      if (to_peer_.size() <= peer) to_peer_.resize(peer + 1);
      to_peer_[peer].push_back({flows_.size() - 1, b});
    }
    const auto num_ways = static_cast<int64_t>(state.flow.to.size()) + (state.flow.from >= 0 ? 1 : 0);
    remaining_bytes_ += num_ways * state.flow.size_bytes;
    if (state.flow.from < 0) state.ready = state.flow.size_bytes;
  }
  for (const State& state : flows_) {
    if (state.flow.feeds >= 0) flows_[static_cast<size_t>(state.flow.feeds)].ready = 0;
  }
}

std::optional<Exchange::Chunk> FlowExchange::next_chunk(int peer) const {
  if (static_cast<size_t>(peer) >= to_peer_.size()) return std::nullopt;
  for (const auto [place, branch] : to_peer_[static_cast<size_t>(peer)]) {
    const State& state = flows_[place];
    const int64_t sent = state.sent[branch];
    const int64_t size = std::min(state.ready - sent, kMaxStreamBytes);
    if (size > 0) return Chunk{0, state.flow.id, {state.flow.data + sent, static_cast<size_t>(size)}};
  }
  return std::nullopt;
}

void FlowExchange::mark_sent(int peer, const Chunk& chunk) {
  State& state = flows_[static_cast<size_t>(place_of_[static_cast<size_t>(chunk.lane)])];
  const auto branch = std::find(state.flow.to.begin(), state.flow.to.end(), peer) - state.flow.to.begin();
  const auto size = static_cast<int64_t>(chunk.bytes.size());
  state.sent[static_cast<size_t>(branch)] += size;
  remaining_bytes_ -= size;
}

int64_t FlowExchange::receive(int peer, int32_t lane, uint8_t, Link& link, int64_t limit) {
  if (lane < 0 || lane >= static_cast<int32_t>(place_of_.size())) return -1;
  const int place = place_of_[static_cast<size_t>(lane)];
  if (place < 0) return -1;
  State& state = flows_[static_cast<size_t>(place)];
  if (state.flow.from != peer || limit > state.flow.size_bytes - state.received) return -1;
  const int64_t begin = state.received;
  const int64_t taken = state.flow.combines
                            ? combine(state, link, limit)
                            : static_cast<int64_t>(link.read(state.flow.data + begin, static_cast<size_t>(limit)));
  state.received += taken;
  state.ready = state.received;
  remaining_bytes_ -= taken;
  if (taken > 0 && state.flow.combines && state.flow.feeds >= 0) finish(state, begin, taken);
  return taken;
}

int64_t FlowExchange::combine(State& state, Link& link, int64_t limit) {
  const int64_t element = dtype_size_bytes(partial_->dtype);
  const std::span<const std::byte> unread = link.peek(static_cast<size_t>(element));
  const int64_t size = std::min(static_cast<int64_t>(unread.size()), limit) / element * element;
  if (size == 0) return 0;
  std::byte* own = state.flow.data + state.received;
  const void* sources[] = {unread.data(), own};
  kernels::reduce(static_cast<kernels::ReduceKind>(partial_->between.op), partial_->dtype, sources, size / element,
                  own);
  link.consume(static_cast<size_t>(size));
  return size;
}

void FlowExchange::finish(const State& state, int64_t begin, int64_t size) {
  State& result = flows_[static_cast<size_t>(state.flow.feeds)];
  const int64_t from_element = dtype_size_bytes(partial_->dtype);
  const int64_t to_element = dtype_size_bytes(result_.dtype);
  finish_reduction(*partial_, state.flow.data + begin, size / from_element, result_.num_contributions, result_.dtype,
                   result.flow.data + begin / from_element * to_element);
  result.ready = (begin + size) / from_element * to_element;
}

int64_t FlowExchange::missing_from(int peer) const {
  int64_t bytes = 0;
  for (const State& state : flows_) {
    if (state.flow.from == peer) bytes += state.flow.size_bytes - state.received;
  }
  return bytes;
}

int64_t FlowExchange::unsent_to(int peer) const {
  int64_t bytes = 0;
  if (static_cast<size_t>(peer) >= to_peer_.size()) return bytes;
  for (const auto [place, branch] : to_peer_[static_cast<size_t>(peer)]) {
    bytes += flows_[place].flow.size_bytes - flows_[place].sent[branch];
  }
  return bytes;
}

}  // namespace qx::collectives
