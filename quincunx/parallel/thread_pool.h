// The process's own threads. A loop is handed to idle workers one by one (each has a word of its own to wait on); every
// thread that takes part wakes up to two more, so that waking many takes few steps. Workers that have not started when
// the work runs out are taken back, so that a caller never waits for a thread that the machine has no core for.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "quincunx/parallel/chunk_queue.h"
#include "quincunx/parallel/thread_count.h"

namespace qx {

// Never destroyed: threads of the program may run loops while static objects go away. Idle workers sleep and end with
// the process. The library that holds this code stays mapped once a pool has started threads, dlclose or not.
class ThreadPool {
 public:
  // The pool of this process. A child of fork gets a new one, because no worker survives the fork.
  static ThreadPool& instance();

  // Runs every chunk of `queue` on the caller and at most threads - 1 workers; returns when all have ended. Starts
  // workers as needed; where the system refuses more threads, says so once and works with those it has. Thread-safe.
  void run(ChunkQueue& queue, int threads);

 private:
  struct Worker;
  struct Job;

  explicit ThreadPool(ThreadPool* parent) : parent_(parent) {}
  static void renew_after_fork();
  void start_workers(int count);
  void serve(Worker& worker);
  void take_part(Job& job);
  bool recruit(Job& job);
  void take_back(Job& job);

  // The pool before the fork, whose threads do not exist here: reachable, so that leak checkers stay silent.
  [[maybe_unused]] ThreadPool* const parent_;
  std::mutex start_mutex_;
  bool start_refused_ = false;
  std::atomic<int> num_workers_{0};
  std::atomic<Worker*> workers_[kMaxThreads] = {};
};

}  // namespace qx
