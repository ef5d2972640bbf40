#include "quincunx/parallel/thread_pool.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "quincunx/base/cpu_count.h"
#include "quincunx/base/logging.h"
#include "quincunx/parallel/futex.h"

namespace qx {
namespace {

// About 20 to 50 microseconds: longer than the gap between two loops of one kernel, shorter than a time slice.
constexpr int kSpins = 1000;

// The state word of a worker: a status in the low bits, above it the number of hand-overs so far. The number keeps a
// caller from taking back a hand-over that is no longer its own.
constexpr uint32_t kStatusMask = 7;
constexpr uint32_t kHandover = 8;
enum WorkerStatus : uint32_t {
  kIdle = 0,      // the worker watches the word
  kAsleep = 1,    // the worker sleeps on the word: wake it after a hand-over
  kReserved = 2,  // a recruiter is writing the job
  kAssigned = 3,  // the worker may start, the caller may take it back
  kRunning = 4,   // the worker is inside the job
};
constexpr uint32_t with_status(uint32_t state, WorkerStatus status) { return (state & ~kStatusMask) | status; }

// Changes the status unless somebody else has changed the word since it was read as `state`.
bool advance(std::atomic<uint32_t>& word, uint32_t state, WorkerStatus status) {
  return word.compare_exchange_strong(state, with_status(state, status), std::memory_order_acq_rel);
}

// Set in Job::active while the caller sleeps on it.
constexpr uint32_t kCallerSleeps = 1u << 31;

std::atomic<ThreadPool*> current_pool{nullptr};

// Workers wait inside this library's code, so it must not be unmapped.
void keep_library_mapped() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&keep_library_mapped), &info) != 0 && info.dli_fname != nullptr) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

}  // namespace

struct alignas(64) ThreadPool::Worker {
  std::atomic<uint32_t> state{kIdle};
  std::atomic<Job*> job{nullptr};
};

// Lives on the caller's stack until no worker is inside.
struct ThreadPool::Job {
  ChunkQueue& queue;
  int max_workers;  // those with a lower index may be recruited
  bool spin;
  std::atomic<int> open_places;     // workers that may still be recruited
  std::atomic<uint32_t> active{0};  // workers recruited that have not left, and kCallerSleeps
};

ThreadPool& ThreadPool::instance() {
  ThreadPool* pool = current_pool.load(std::memory_order_acquire);
  if (pool != nullptr) return *pool;
  // No function-local static: a fork during its initialisation would leave the child with a guard that nobody releases.
  // Two threads may get here at once; the handler then runs twice in a child, which does no harm.
  auto* created = new ThreadPool(nullptr);
  pthread_atfork(nullptr, nullptr, &ThreadPool::renew_after_fork);
  if (current_pool.compare_exchange_strong(pool, created, std::memory_order_acq_rel)) return *created;
  delete created;
  return *pool;
}

void ThreadPool::renew_after_fork() {
  current_pool.store(new ThreadPool(current_pool.load(std::memory_order_relaxed)), std::memory_order_release);
}

void ThreadPool::run(ChunkQueue& queue, int threads) {
  const int workers = static_cast<int>(std::min<int64_t>(threads, queue.num_chunks()) - 1);
  if (num_workers_.load(std::memory_order_acquire) < workers) start_workers(workers);
  Job job{queue, threads - 1, threads <= num_available_cpus(), {workers}, {0}};
  take_part(job);
  take_back(job);
  uint32_t active = job.active.load(std::memory_order_acquire);
  for (int i = 0; job.spin && active != 0 && i < kSpins; ++i) {
    cpu_relax();
    active = job.active.load(std::memory_order_acquire);
  }
  if (active == 0) return;
  active = job.active.fetch_or(kCallerSleeps, std::memory_order_acquire) | kCallerSleeps;
  while (active != kCallerSleeps) {
    futex_wait(job.active, active);
    active = job.active.load(std::memory_order_acquire);
  }
}

void ThreadPool::take_part(Job& job) {
  constexpr int kWakeUps = 2;
  do {
    for (int i = 0; i < kWakeUps && job.queue.num_waiting() > 1 && recruit(job); ++i) {
    }
  } while (job.queue.run_one());
}

bool ThreadPool::recruit(Job& job) {
  if (job.open_places.load(std::memory_order_relaxed) <= 0) return false;
  if (job.open_places.fetch_sub(1, std::memory_order_relaxed) <= 0) {
    job.open_places.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  const int candidates = std::min(num_workers_.load(std::memory_order_acquire), job.max_workers);
  for (const WorkerStatus wanted : {kIdle, kAsleep}) {
    for (int i = 0; i < candidates; ++i) {
      Worker& worker = *workers_[i].load(std::memory_order_relaxed);
      const uint32_t state = worker.state.load(std::memory_order_relaxed);
      if ((state & kStatusMask) != wanted) continue;
      if (!advance(worker.state, state, kReserved)) continue;
      job.active.fetch_add(1, std::memory_order_relaxed);
      worker.job.store(&job, std::memory_order_relaxed);
      worker.state.store(with_status(state + kHandover, kAssigned), std::memory_order_release);
      if (wanted == kAsleep) futex_wake_one(&worker.state);
      return true;
    }
  }
  job.open_places.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void ThreadPool::take_back(Job& job) {
  if (job.active.load(std::memory_order_relaxed) == 0) return;
  const int candidates = std::min(num_workers_.load(std::memory_order_acquire), job.max_workers);
  for (int i = 0; i < candidates; ++i) {
    Worker& worker = *workers_[i].load(std::memory_order_relaxed);
    const uint32_t state = worker.state.load(std::memory_order_acquire);
    if ((state & kStatusMask) != kAssigned || worker.job.load(std::memory_order_relaxed) != &job) continue;
    if (advance(worker.state, state, kIdle)) {
      job.active.fetch_sub(1, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::start_workers(int count) {
  const std::lock_guard lock(start_mutex_);
  keep_library_mapped();
  // Signals belong to the program's own threads: Python, for one, handles them on its main thread.
  sigset_t all;
  sigset_t previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  for (int i = num_workers_.load(std::memory_order_relaxed); i < count && !start_refused_; ++i) {
    auto worker = std::make_unique<Worker>();
    try {
      std::thread thread([this, i, target = worker.get()] {
        pthread_setname_np(pthread_self(), ("qx-pool-" + std::to_string(i + 1)).c_str());
        serve(*target);
      });
      thread.detach();
    } catch (const std::system_error& error) {
      start_refused_ = true;
      QX_LOG_WARNING("parallel: cannot start thread " + std::to_string(i + 2) + " of " + std::to_string(count + 1) +
                     " (" + error.what() + "); loops run on " + std::to_string(i + 1) + " threads");
      break;
    }
    workers_[i].store(worker.release(), std::memory_order_relaxed);
    num_workers_.store(i + 1, std::memory_order_release);
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

void ThreadPool::serve(Worker& worker) {
  const ParallelRegionGuard region;
  int spins_left = 0;
  for (;;) {
    const uint32_t state = worker.state.load(std::memory_order_acquire);
    switch (state & kStatusMask) {
      case kAssigned: {
        if (!advance(worker.state, state, kRunning)) break;
        Job& job = *worker.job.load(std::memory_order_relaxed);
        spins_left = job.spin ? kSpins : 0;
        take_part(job);
        // Idle before leaving: the caller's next loop follows at once and should find this worker free.
        worker.state.store(with_status(state, kIdle), std::memory_order_release);
        std::atomic<uint32_t>* const active = &job.active;
        if (active->fetch_sub(1, std::memory_order_acq_rel) == (kCallerSleeps | 1)) futex_wake_one(active);
        break;
      }
      case kIdle:
        if (spins_left > 0) {
          --spins_left;
          cpu_relax();
        } else {
          advance(worker.state, state, kAsleep);
        }
        break;
      case kAsleep: futex_wait(worker.state, state); break;
      default:  // kReserved: the recruiter is two stores away, unless it lost its core
        std::this_thread::yield();
    }
  }
}

}  // namespace qx
