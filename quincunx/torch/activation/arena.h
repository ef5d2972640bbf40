// Moves bytes of tensors out of memory, to one unlinked file with a budget, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "quincunx/torch/activation/timeline.h"

namespace qx::activation {

class SwapArena;

// A range of the file. It is given back when the last owner of the extent has gone, which waits for a running transfer.
struct Extent {
  ~Extent();
  std::shared_ptr<SwapArena> arena;
  int64_t offset = 0;
  int64_t num_bytes = 0;
  // Guarded by the arena's mutex. `memory` holds the bytes until they are written and again once they are read.
  at::Tensor memory;
  bool stored = false;
  bool busy = false;
  std::string error;
  std::shared_ptr<HeldBytes> held_in_memory;
  std::shared_ptr<HeldBytes> held_in_file;
};

// Of all arenas since the process began.
struct SwapTotals {
  std::atomic<int64_t> bytes_written = 0, bytes_read = 0;
};
SwapTotals& swap_totals();

// One thread writes and reads in the order of the requests. All functions may be called from any thread, without the
// interpreter lock. Errors are exceptions; the bytes of a write that failed stay in memory.
class SwapArena : public std::enable_shared_from_this<SwapArena> {
 public:
  SwapArena(const std::string& directory, int64_t budget_bytes);
  ~SwapArena();

  // Reserves disk blocks now, so that a full disk or budget is an error here, and writes later. `bytes` is a contiguous
  // tensor of int8 that nobody may change before finish_write().
  std::shared_ptr<Extent> write(at::Tensor bytes);
  // Waits until the bytes are in the file. Throws if they could not be written.
  void finish_write(const std::shared_ptr<Extent>& extent);
  // Starts to read; read() waits for it.
  void prefetch(const std::shared_ptr<Extent>& extent);
  // The bytes, as a new tensor of the caller.
  at::Tensor read(const std::shared_ptr<Extent>& extent);

  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t used_bytes();
  int64_t num_prefetched();

 private:
  friend struct Extent;
  int64_t allocate(int64_t num_bytes);
  void release(const Extent& extent);
  void enqueue(Extent& extent);
  void run();

  const int64_t budget_bytes_;
  const int64_t process_;  // the one that has the thread
  int file_ = -1;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<Extent*> queue_;
  std::map<int64_t, int64_t> free_;  // offset -> bytes
  int64_t file_bytes_ = 0;
  int64_t used_bytes_ = 0;
  int64_t in_flight_bytes_ = 0;
  int64_t num_prefetched_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace qx::activation
