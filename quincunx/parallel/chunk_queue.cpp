#include "quincunx/parallel/chunk_queue.h"

#include <utility>

namespace qx {

thread_local bool ParallelRegionGuard::inside_ = false;

ChunkQueue::ChunkQueue(int64_t begin, int64_t end, int64_t grain, int threads, RangeFunction body)
    : body_(body), begin_(begin), end_(end) {
  // Unsigned: the distance between two 64-bit integers can be 2^64 - 1.
  const uint64_t length = static_cast<uint64_t>(end) - static_cast<uint64_t>(begin);
  const auto shares = static_cast<uint64_t>(threads) * kChunksPerThread;
  const uint64_t even = length / shares + (length % shares != 0);
  const uint64_t size = std::min(std::max(even, static_cast<uint64_t>(std::max<int64_t>(grain, 1))), length);
  num_chunks_ = static_cast<int64_t>(length / size + (length % size != 0));
  // A size beyond int64 means one chunk, whose end is end_.
  chunk_size_ = num_chunks_ == 1 ? 0 : static_cast<int64_t>(size);
}

bool ChunkQueue::run_one() {
  // Checked first so that the counter stays near num_chunks_ however often it is asked.
  if (num_waiting() == 0) return false;
  const int64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
  if (chunk >= num_chunks_) return false;
  const auto first = static_cast<int64_t>(static_cast<uint64_t>(begin_) +
                                          static_cast<uint64_t>(chunk) * static_cast<uint64_t>(chunk_size_));
  const int64_t last = chunk + 1 == num_chunks_ ? end_ : first + chunk_size_;
  try {
    const ParallelRegionGuard region;
    body_(first, last);
  } catch (...) {
    record_failure(chunk);
  }
  return true;
}

void ChunkQueue::record_failure(int64_t chunk) {
  next_.store(num_chunks_, std::memory_order_relaxed);  // chunks that have not started are dropped
  const std::lock_guard lock(failure_mutex_);
  if (failure_ && failed_chunk_ < chunk) return;
  failure_ = std::current_exception();
  failed_chunk_ = chunk;
}

void ChunkQueue::rethrow_failure() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace qx
