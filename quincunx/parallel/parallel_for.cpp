#include "quincunx/parallel/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <string>

#include "quincunx/base/check.h"
#include "quincunx/base/logging.h"
#include "quincunx/parallel/chunk_queue.h"
#include "quincunx/parallel/thread_count.h"
#include "quincunx/parallel/thread_pool.h"

namespace qx {
namespace {

std::atomic<int> requested_threads{0};  // 0: the default
std::atomic<const ParallelBackend*> current_backend{nullptr};

int own_threads() {
  const int requested = requested_threads.load(std::memory_order_relaxed);
  return requested != 0 ? requested : default_thread_count();
}

// Each task drains the queue, so the loop is complete however the backend spreads the tasks; exceptions stay inside.
void run_on_backend(const ParallelBackend& backend, ChunkQueue& queue, int threads) {
  const int64_t tasks = std::min<int64_t>(threads, queue.num_chunks());
  backend.run(0, tasks, 1, [&queue](int64_t, int64_t) { queue.drain(); });
}

}  // namespace

void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFunction body) {
  if (begin >= end) return;
  if (ParallelRegionGuard::inside()) return body(begin, end);
  const ParallelBackend* backend = current_backend.load(std::memory_order_acquire);
  const int threads = std::max(1, backend != nullptr ? backend->threads() : own_threads());
  const uint64_t length = static_cast<uint64_t>(end) - static_cast<uint64_t>(begin);
  if (threads == 1 || length <= static_cast<uint64_t>(std::max<int64_t>(grain, 1))) {
    const ParallelRegionGuard region;
    return body(begin, end);
  }
  ChunkQueue queue(begin, end, grain, threads, body);
  if (backend != nullptr) {
    run_on_backend(*backend, queue, threads);
  } else {
    ThreadPool::instance().run(queue, threads);
  }
  queue.rethrow_failure();
}

int num_threads() {
  const ParallelBackend* backend = current_backend.load(std::memory_order_acquire);
  return std::max(1, backend != nullptr ? backend->threads() : own_threads());
}

void set_num_threads(int count) {
  if (count < 0 || count > kMaxThreads) {
    QX_LOG_ERROR("set_num_threads: expected 0 to " + std::to_string(kMaxThreads) + ", got " + std::to_string(count) +
                 "; nothing is changed");
    return;
  }
  requested_threads.store(count, std::memory_order_relaxed);
}

bool in_parallel_region() { return ParallelRegionGuard::inside(); }

void set_parallel_backend(ParallelBackend backend) {
  QX_CHECK_MESSAGE((backend.run == nullptr) == (backend.threads == nullptr), "a backend has both functions or none");
  // Loops that have begun may still read an earlier backend: each stays for the life of the process.
  static std::mutex mutex;
  static auto* const backends = new std::deque<ParallelBackend>;
  const std::lock_guard lock(mutex);
  const bool own = backend.run == nullptr;
  if (!own) backends->push_back(backend);
  current_backend.store(own ? nullptr : &backends->back(), std::memory_order_release);
}

}  // namespace qx
