// The part of Group that offers memory to peers and reads theirs.
#include <unistd.h>

#include <atomic>

#include "quincunx/collectives/algorithms/ways.h"
#include "quincunx/collectives/group.h"
#include "quincunx/collectives/offer.h"

namespace qx::collectives {
namespace {

// Ranks that are threads of one process see a ring at two addresses, which ThreadSanitizer takes for two rings: it
// learns here that the memory of one was read before or after the frame that says so.
std::atomic<uint64_t> num_frames_about_memory{0};
void order_within_process() { num_frames_about_memory.fetch_add(1, std::memory_order_acq_rel); }

FrameHeader header_of(FrameKind kind, uint64_t group, uint64_t sequence, const Exchange::Notice& notice) {
  FrameHeader header;
  header.kind = kind;
  header.group = group;
  header.sequence = sequence;
  header.stream = notice.stream;
  header.root_or_tag = notice.lane;
  header.count = notice.count;
  return header;
}

}  // namespace

void Group::make_offers(int rank) {
  if (rank < 0 || rank == rank_ || !begun_ || !engine_.shares_memory_with(world_rank(rank))) return;
  Exchange& exchange = queue_.front().exchange();
  std::shared_ptr<SharedArena> arena;
  for (const uint8_t stream : {uint8_t{0}, uint8_t{1}}) {
    const std::span<const std::byte> bytes = exchange.to_be_sent(rank, stream);
    const auto size = static_cast<int64_t>(bytes.size());
    if (size < kInPlaceBytes) continue;
    if (!arena) arena = SharedArena::existing();
    const std::optional<int64_t> offset = arena ? arena->offset_of(bytes.data(), size) : std::nullopt;
    Offer offer;
    if (offset) {
      offer = {arena->address(), *offset};
    } else {
      const int64_t least = peer_memory_bytes(exchange.operation(), Group::size());
      if (stream != 0 || size < least || !engine_.may_read_memory(world_rank(rank))) continue;
      offer.arena.pid = getpid();
      offer.offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(bytes.data()));
    }
    const int32_t lane = exchange.offer(rank, stream);
    order_within_process();
    const FrameHeader header =
        header_of(FrameKind::kOffer, id_, current_sequence_, {rank, FrameKind::kOffer, stream, lane, size});
    engine_.post(world_rank(rank), header, offer.bytes());
  }
}

void Group::on_link(int world_rank) {
  if (!begun_ || group_rank(world_rank) < 0) return;
  make_offers(group_rank(world_rank));
  send_notices();
}

Status Group::on_offer(int rank, const FrameHeader& header, std::span<const std::byte> payload) {
  if (!announced_ || header.sequence != current_sequence_) return data_loss("an offer for no operation of this rank");
  QX_ASSIGN_OR_RETURN(const Offer offer, Offer::from_bytes(payload));
  if (begun_) return take_offer(rank, header, offer);
  early_offers_.push_back({rank, header, offer});
  return ok_status();
}

Status Group::take_offer(int rank, const FrameHeader& header, const Offer& offer) {
  order_within_process();
  if (header.kind == FrameKind::kReady) {
    queue_.front().exchange().on_ready(rank, header.root_or_tag, header.count);
    return ok_status();
  }
  bool is_known = false;
  bool can_read = false;
  Exchange& exchange = queue_.front().exchange();
  if (offer.arena.fd < 0) {
    const PeerMemory memory(offer.arena.pid, static_cast<uint64_t>(offer.offset));
    can_read = engine_.shares_memory_with(world_rank(rank)) && memory.can_read();
    is_known = can_read && header.stream == 0 && exchange.read_from(rank, header.root_or_tag, memory, header.count);
  } else {
    const Result<const ArenaView*> arena = engine_.arena_of(world_rank(rank), offer.arena);
    const std::byte* data = arena.ok() ? (*arena)->at(offer.offset, header.count) : nullptr;
    can_read = data != nullptr;
    is_known = can_read && exchange.read_from(rank, header.root_or_tag, header.stream, data, header.count);
  }
  if (!can_read) {
    FrameHeader answer = header;
    answer.kind = FrameKind::kOfferRefused;
    engine_.post(world_rank(rank), answer, {});
    return ok_status();
  }
  if (is_known) return ok_status();
  return data_loss("an offer that the calls of " + queue_.front().operation->label() + " do not know");
}

Status Group::on_answer_to_offer(int rank, const FrameHeader& header) {
  if (!begun_ || header.sequence != current_sequence_) {
    // Results may be there before this rank has seen all calls.
    if (!announced_ || header.sequence != current_sequence_ || header.kind != FrameKind::kReady) {
      return data_loss("an answer to no offer of this rank");
    }
    early_offers_.push_back({rank, header, {}});
    return ok_status();
  }
  Exchange& exchange = queue_.front().exchange();
  order_within_process();
  switch (header.kind) {
    case FrameKind::kReady: exchange.on_ready(rank, header.root_or_tag, header.count); return ok_status();
    case FrameKind::kOfferRefused:
      exchange.refused(rank, header.root_or_tag, header.stream);
      engine_.forbid_reading(world_rank(rank));
      return ok_status();
    default:
      if (!exchange.on_taken(rank, header.root_or_tag, header.stream))
        return data_loss("a stream was taken that was not offered");
      finish_if_complete();
      return ok_status();
  }
}

void Group::send_notices() {
  const std::vector<Exchange::Notice> notices = queue_.front().exchange().take_notices();
  if (!notices.empty()) order_within_process();
  bool is_awaited = false;
  for (const Exchange::Notice& notice : notices) {
    engine_.post(world_rank(notice.peer), header_of(notice.kind, id_, current_sequence_, notice), {});
    // A window is left where a credit is on its way.
    is_awaited = is_awaited || notice.kind != FrameKind::kCredit;
  }
  if (is_awaited) engine_.flush();
}

bool Group::read_in_place() {
  if (!begun_ || !queue_.front().exchange().read_in_place()) return false;
  send_notices();
  finish_if_complete();
  return true;
}

}  // namespace qx::collectives
