#include "quincunx/collectives/algorithms/staged_exchange.h"

#include <algorithm>

#include "quincunx/base/check.h"
#include "quincunx/collectives/algorithms/flow_exchange.h"

namespace qx::collectives {
namespace {

// The lane of a frame: its stage, and the lane within that.
int32_t lane_of(size_t stage, int32_t inner) { return static_cast<int32_t>(stage) * kMaxFlows + inner; }

}  // namespace

StagedExchange::StagedExchange(std::vector<Stage> stages, std::vector<std::unique_ptr<std::byte[]>> scratch)
    : stages_(std::move(stages)), scratch_(std::move(scratch)) {}

StagedExchange::Place StagedExchange::in_stage(int peer, size_t stage) const {
  if (stage >= stages_.size() || stages_[stage].exchange == nullptr) return {};
  const std::vector<int>& members = stages_[stage].members;
  const auto found = std::lower_bound(members.begin(), members.end(), peer);
  if (found == members.end() || *found != peer) return {};
  return {stages_[stage].exchange.get(), static_cast<int>(found - members.begin())};
}

StagedExchange::Place StagedExchange::place_of(int peer, int32_t lane) const {
  return lane < 0 ? Place{} : in_stage(peer, static_cast<size_t>(lane / kMaxFlows));
}

Status StagedExchange::begin(std::span<const std::span<const std::byte>>) {
  if (stages_[0].exchange) return stages_[0].exchange->begin({});
  return ok_status();
}

bool StagedExchange::advance() {
  const Exchange* done = stages_[current_].exchange.get();
  if (current_ + 1 == stages_.size() || (done != nullptr && !done->is_complete())) return false;
  ++current_;
  // Nothing is inlined: there is nothing that could be wrong.
  if (stages_[current_].exchange) static_cast<void>(stages_[current_].exchange->begin({}));
  return true;
}

Operation StagedExchange::operation() const {
  const Exchange* exchange = stages_[current_].exchange.get();
  return exchange != nullptr ? exchange->operation() : Operation::kBarrier;
}

std::optional<Exchange::Chunk> StagedExchange::next_chunk(int peer) const {
  const Place place = in_current(peer);
  if (place.exchange == nullptr) return std::nullopt;
  std::optional<Chunk> chunk = place.exchange->next_chunk(place.peer);
  if (chunk) chunk->lane = lane_of(current_, chunk->lane);
  return chunk;
}

void StagedExchange::mark_sent(int peer, const Chunk& chunk) {
  const Place place = place_of(peer, chunk.lane);
  QX_CHECK(place.exchange != nullptr);  // the chunk is one of next_chunk
  place.exchange->mark_sent(place.peer, {chunk.stream, chunk.lane % kMaxFlows, chunk.bytes});
}

int64_t StagedExchange::receive(int peer, int32_t lane, uint8_t stream, Link& link, int64_t limit) {
  const Place place = place_of(peer, lane);
  if (place.exchange == nullptr) return -1;
  const auto stage = static_cast<size_t>(lane / kMaxFlows);
  if (stage > current_) return 0;
  return place.exchange->receive(place.peer, lane % kMaxFlows, stream, link, limit);
}

void StagedExchange::add_credit(int peer, int32_t lane, int64_t reduced_bytes) {
  const Place place = place_of(peer, lane);
  if (place.exchange) place.exchange->add_credit(place.peer, lane % kMaxFlows, reduced_bytes);
}

std::span<const std::byte> StagedExchange::to_be_sent(int peer, uint8_t stream) const {
  const Place place = in_current(peer);
  return place.exchange ? place.exchange->to_be_sent(place.peer, stream) : std::span<const std::byte>();
}

int32_t StagedExchange::offer(int peer, uint8_t stream) {
  const Place place = in_current(peer);
  return lane_of(current_, place.exchange->offer(place.peer, stream));
}

void StagedExchange::refused(int peer, int32_t lane, uint8_t stream) {
  const Place place = place_of(peer, lane);
  if (place.exchange) place.exchange->refused(place.peer, lane % kMaxFlows, stream);
}

bool StagedExchange::read_from(int peer, int32_t lane, uint8_t stream, const std::byte* data, int64_t size) {
  const Place place = place_of(peer, lane);
  return place.exchange && place.exchange->read_from(place.peer, lane % kMaxFlows, stream, data, size);
}

bool StagedExchange::read_from(int peer, int32_t lane, const PeerMemory& memory, int64_t size) {
  const Place place = place_of(peer, lane);
  return place.exchange && place.exchange->read_from(place.peer, lane % kMaxFlows, memory, size);
}

void StagedExchange::on_ready(int peer, int32_t lane, int64_t size) {
  const Place place = place_of(peer, lane);
  if (place.exchange) place.exchange->on_ready(place.peer, lane % kMaxFlows, size);
}

bool StagedExchange::on_taken(int peer, int32_t lane, uint8_t stream) {
  const Place place = place_of(peer, lane);
  return place.exchange && place.exchange->on_taken(place.peer, lane % kMaxFlows, stream);
}

bool StagedExchange::read_in_place() {
  return stages_[current_].exchange && stages_[current_].exchange->read_in_place();
}

int64_t StagedExchange::bytes_read_in_place() const {
  int64_t bytes = 0;
  for (const Stage& stage : stages_) bytes += stage.exchange ? stage.exchange->bytes_read_in_place() : 0;
  return bytes;
}

std::vector<Exchange::Notice> StagedExchange::take_notices() {
  const Stage& stage = stages_[current_];
  if (!stage.exchange) return {};
  std::vector<Notice> notices = stage.exchange->take_notices();
  for (Notice& notice : notices) {
    notice.peer = stage.members[static_cast<size_t>(notice.peer)];
    notice.lane = lane_of(current_, notice.lane);
  }
  return notices;
}

bool StagedExchange::is_complete() const {
  const Exchange* exchange = stages_[current_].exchange.get();
  return current_ + 1 == stages_.size() && (exchange == nullptr || exchange->is_complete());
}

int64_t StagedExchange::missing_from(int peer) const {
  int64_t bytes = 0;
  for (size_t s = current_; s < stages_.size(); ++s) {
    const Place place = in_stage(peer, s);
    if (place.exchange) bytes += place.exchange->missing_from(place.peer);
  }
  return bytes;
}

int64_t StagedExchange::unsent_to(int peer) const {
  int64_t bytes = 0;
  for (size_t s = current_; s < stages_.size(); ++s) {
    const Place place = in_stage(peer, s);
    if (place.exchange) bytes += place.exchange->unsent_to(place.peer);
  }
  return bytes;
}

}  // namespace qx::collectives
