#include "quincunx/collectives/transport/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace qx::collectives {
namespace {

// Fresh pages hold zeros: what is not written here must begin with them, so that nothing needs to be touched.
struct SegmentHeader {
  Doorbell doorbell;
};

constexpr int64_t kHeaderSpace = 4096;
static_assert(sizeof(SegmentHeader) <= kHeaderSpace);

// One bit a rank, behind the header: set by the rank when it begins to write to this segment.
using CallerWord = std::atomic<uint64_t>;
int64_t num_caller_words(int world_size) { return (world_size + 63) / 64; }
// Rings begin on a page.
int64_t rings_offset(int world_size) {
  const int64_t bytes = kHeaderSpace + num_caller_words(world_size) * static_cast<int64_t>(sizeof(CallerWord));
  return (bytes + kHeaderSpace - 1) / kHeaderSpace * kHeaderSpace;
}

}  // namespace

int64_t shared_segment_bytes(int world_size) {
  return rings_offset(world_size) + world_size * (static_cast<int64_t>(sizeof(Ring)) + shared_ring_bytes(world_size));
}

int64_t shared_ring_bytes(int world_size) {
  // Each change between two processes that share a core moves one ring at most, so that a large ring is faster by far
  // where cores are busy. The rings of a host grow with the square of its ranks: those of one rank share 2 MiB.
  constexpr int64_t kAllRings = 2 << 20, kLargest = 1 << 20, kSmallest = 16 << 10;
  const auto share = static_cast<uint64_t>(kAllRings / std::max(world_size - 1, 1));
  return std::clamp(static_cast<int64_t>(std::bit_floor(share)), kSmallest, kLargest);
}

Result<std::unique_ptr<Segment>> Segment::map(const HostMemory& memory, int rank) {
  std::unique_ptr<Segment> segment(new Segment);
  segment->world_size_ = memory.world_size();
  segment->ring_bytes_ = shared_ring_bytes(segment->world_size_);
  segment->size_bytes_ = memory.segment_bytes();
  QX_ASSIGN_OR_RETURN(segment->base_, memory.map_segment(rank));
  segment->seen_callers_.resize(static_cast<size_t>(num_caller_words(segment->world_size_)));
  return segment;
}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(size_bytes_));
}

Doorbell& Segment::doorbell() { return reinterpret_cast<SegmentHeader*>(base_)->doorbell; }

Ring& Segment::ring(int source_rank) {
  return *reinterpret_cast<Ring*>(base_ + rings_offset(world_size_) + static_cast<int64_t>(sizeof(Ring)) * source_rank);
}

std::byte* Segment::ring_data(int source_rank) {
  return base_ + rings_offset(world_size_) + static_cast<int64_t>(sizeof(Ring)) * world_size_ +
         ring_bytes_ * source_rank;
}

void Segment::call(int rank) {
  auto* words = reinterpret_cast<CallerWord*>(base_ + kHeaderSpace);
  words[rank / 64].fetch_or(uint64_t{1} << (rank % 64), std::memory_order_seq_cst);
  doorbell().ring();
}

std::vector<int> Segment::take_callers() {
  std::vector<int> callers;
  const auto* words = reinterpret_cast<const CallerWord*>(base_ + kHeaderSpace);
  for (size_t i = 0; i < seen_callers_.size(); ++i) {
    uint64_t fresh = words[i].load(std::memory_order_acquire) & ~seen_callers_[i];
    seen_callers_[i] |= fresh;
    for (; fresh != 0; fresh &= fresh - 1) {
      const int rank = static_cast<int>(i) * 64 + std::countr_zero(fresh);
      if (rank < world_size_) callers.push_back(rank);
    }
  }
  return callers;
}

SharedMemoryLink::SharedMemoryLink(Segment& own, std::unique_ptr<Segment> peer, int own_rank, int peer_rank)
    : peer_(std::move(peer)),
      incoming_(own.ring(peer_rank)),
      outgoing_(peer_ ? &peer_->ring(own_rank) : nullptr),
      incoming_data_(own.ring_data(peer_rank)),
      outgoing_data_(peer_ ? peer_->ring_data(own_rank) : nullptr),
      capacity_(static_cast<uint64_t>(own.ring_bytes())) {}

uint64_t SharedMemoryLink::room() const {
  // The position is the peer's to write: one outside the ring must not become an address.
  const uint64_t unread = written_ - peer_read_;
  return unread > capacity_ ? 0 : capacity_ - unread;
}

size_t SharedMemoryLink::write(std::span<const std::byte> bytes) {
  if (outgoing_ == nullptr) return bytes.size();
  if (room() < bytes.size()) peer_read_ = outgoing_->read.load(std::memory_order_acquire);
  if (room() < bytes.size()) {
    // Read again after the announcement: the reader either sees it or has already made the room visible.
    outgoing_->writer_waits.exchange(1, std::memory_order_seq_cst);
    peer_read_ = outgoing_->read.load(std::memory_order_seq_cst);
  }
  const size_t taken = std::min<size_t>(room(), bytes.size());
  const size_t offset = written_ % capacity_;
  const size_t first = std::min(taken, capacity_ - offset);
  copy_(outgoing_data_ + offset, bytes.data(), first);
  copy_(outgoing_data_, bytes.data() + first, taken - first);
  written_ += taken;
  return taken;
}

void SharedMemoryLink::flush() {
  if (flushed_ == written_) return;
  outgoing_->written.store(written_, std::memory_order_release);
  flushed_ = written_;
  peer_->doorbell().ring();
}

std::span<const std::byte> SharedMemoryLink::peek(size_t) {
  const uint64_t available = incoming_.written.load(std::memory_order_acquire) - read_;
  const size_t offset = read_ % capacity_;
  return {incoming_data_ + offset, std::min<size_t>(std::min(available, capacity_), capacity_ - offset)};
}

void SharedMemoryLink::consume(size_t num_bytes) {
  if (num_bytes == 0) return;
  read_ += num_bytes;
  incoming_.read.store(read_, std::memory_order_seq_cst);
  if (incoming_.writer_waits.load(std::memory_order_seq_cst) == 0) return;
  incoming_.writer_waits.store(0, std::memory_order_relaxed);
  if (peer_) peer_->doorbell().ring();
}

}  // namespace qx::collectives
