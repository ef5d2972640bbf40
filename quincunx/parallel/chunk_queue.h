// The work of one parallel_for: a range cut into chunks that any number of threads take one after another. Cores are
// shared, so a thread that is held up must not hold a fixed share of the range.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "quincunx/parallel/parallel_for.h"

namespace qx {

// Marks the calling thread as inside a body; nested calls then run inline.
class ParallelRegionGuard {
 public:
  ParallelRegionGuard() : outer_(inside_) { inside_ = true; }
  ~ParallelRegionGuard() { inside_ = outer_; }
  ParallelRegionGuard(const ParallelRegionGuard&) = delete;
  ParallelRegionGuard& operator=(const ParallelRegionGuard&) = delete;
  static bool inside() { return inside_; }

 private:
  static thread_local bool inside_;
  const bool outer_;
};

// Thread-safe but for rethrow_failure, which comes after every drain has ended.
class ChunkQueue {
 public:
  // More chunks than threads even out cores of unequal speed; few enough that taking them costs next to nothing.
  static constexpr int64_t kChunksPerThread = 4;

  // [begin, end) must not be empty; a grain below 1 counts as 1.
  ChunkQueue(int64_t begin, int64_t end, int64_t grain, int threads, RangeFunction body);

  int64_t num_chunks() const { return num_chunks_; }
  // Chunks that nobody has taken.
  int64_t num_waiting() const { return std::max<int64_t>(0, num_chunks_ - next_.load(std::memory_order_relaxed)); }
  // Takes and runs one chunk; false when none is left.
  bool run_one();
  void drain() {
    while (run_one()) {
    }
  }
  // Throws the exception of the lowest chunk that failed, if any did.
  void rethrow_failure();

 private:
  void record_failure(int64_t chunk);

  const RangeFunction body_;
  const int64_t begin_;
  const int64_t end_;
  int64_t chunk_size_;
  int64_t num_chunks_;
  std::atomic<int64_t> next_{0};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  int64_t failed_chunk_ = 0;
};

}  // namespace qx
