#include "quincunx/torch/activation/arena.h"

#include <ATen/Functions.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace qx::activation {
namespace {

constexpr int64_t kBlockBytes = 4096;
// Bytes that wait for the disk are still in memory; a writer that runs further ahead than this is held up.
constexpr int64_t kMaxInFlightBytes = int64_t{64} << 20;

int64_t rounded(int64_t num_bytes) { return (num_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes; }

// The whole range, whatever the kernel splits it into. Returns what went wrong, or an empty string.
template <typename Transfer>
std::string transfer_all(Transfer transfer, char* data, int64_t num_bytes, int64_t offset) {
  while (num_bytes > 0) {
    const ssize_t moved = transfer(data, static_cast<size_t>(num_bytes), offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return std::strerror(errno);
    if (moved == 0) return "the file is shorter than what was written to it";
    data += moved;
    num_bytes -= moved;
    offset += moved;
  }
  return "";
}

}  // namespace

Extent::~Extent() { arena->release(*this); }

SwapTotals& swap_totals() {
  static SwapTotals instance;
  return instance;
}

SwapArena::SwapArena(const std::string& directory, int64_t budget_bytes)
    : budget_bytes_(budget_bytes), process_(getpid()) {
  TORCH_CHECK_VALUE(budget_bytes > 0, "budget_bytes is ", budget_bytes, "; expected more than 0");
  std::vector<char> path(directory.begin(), directory.end());
  for (const char c : std::string("/quincunx-swap-XXXXXX")) path.push_back(c);
  path.push_back('\0');
  file_ = mkostemp(path.data(), O_CLOEXEC);
  TORCH_CHECK_VALUE(file_ >= 0, "directory is '", directory, "', where no file can be made: ", std::strerror(errno));
  unlink(path.data());
  thread_ = std::thread([this] { run(); });
}

SwapArena::~SwapArena() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  // A forked child has the object but not its thread.
  if (process_ == getpid()) {
    thread_.join();
  } else {
    thread_.detach();
  }
  close(file_);
}

int64_t SwapArena::allocate(int64_t num_bytes) {
  TORCH_CHECK(used_bytes_ + num_bytes <= budget_bytes_, "swap: ", num_bytes, " bytes more than the ", used_bytes_,
              " in use exceed the arena's budget_bytes of ", budget_bytes_);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [offset, available] = *range;
    if (available < num_bytes) continue;
    free_.erase(range);
    if (available > num_bytes) free_[offset + num_bytes] = available - num_bytes;
    return offset;
  }
  const int error = posix_fallocate(file_, file_bytes_, num_bytes);
  TORCH_CHECK(error == 0, "swap: the arena's file cannot grow from ", file_bytes_, " bytes by ", num_bytes, ": ",
              std::strerror(error));
  file_bytes_ += num_bytes;
  return file_bytes_ - num_bytes;
}

void SwapArena::release(const Extent& extent) {
  std::unique_lock lock(mutex_);
  // The arena's thread holds plain pointers, so that no extent, and with it the arena, ever dies on that thread.
  done_.wait(lock, [&] { return !extent.busy; });
  const int64_t offset = extent.offset;
  int64_t length = rounded(extent.num_bytes);
  used_bytes_ -= length;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + length) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  free_[offset] = length;
}

std::shared_ptr<Extent> SwapArena::write(at::Tensor bytes) {
  TORCH_CHECK(process_ == getpid(), "swap: the arena was made in process ", process_, " and this is its child ",
              getpid(), "; make an arena of its own in each process");
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return in_flight_bytes_ <= kMaxInFlightBytes; });
  const int64_t num_bytes = bytes.numel();
  const int64_t offset = allocate(rounded(num_bytes));
  used_bytes_ += rounded(num_bytes);
  auto extent = std::make_shared<Extent>();
  extent->arena = shared_from_this();
  extent->offset = offset;
  extent->num_bytes = num_bytes;
  extent->memory = std::move(bytes);
  extent->held_in_memory = HeldBytes::make(Holder::kSwapBuffer, num_bytes);
  in_flight_bytes_ += num_bytes;
  enqueue(*extent);
  return extent;
}

void SwapArena::enqueue(Extent& extent) {
  extent.busy = true;
  queue_.push_back(&extent);
  work_.notify_one();
}

void SwapArena::finish_write(const std::shared_ptr<Extent>& extent) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return !extent->busy; });
  TORCH_CHECK(extent->error.empty(), "swap: ", extent->num_bytes, " bytes could not be written: ", extent->error);
}

void SwapArena::prefetch(const std::shared_ptr<Extent>& extent) {
  const std::lock_guard lock(mutex_);
  if (extent->busy || extent->memory.defined()) return;
  ++num_prefetched_;
  enqueue(*extent);
}

at::Tensor SwapArena::read(const std::shared_ptr<Extent>& extent) {
  std::unique_lock lock(mutex_);
  if (!extent->busy && !extent->memory.defined()) enqueue(*extent);
  done_.wait(lock, [&] { return !extent->busy; });
  if (extent->memory.defined()) {
    at::Tensor bytes = extent->memory;
    // What could not be written exists only here.
    if (extent->stored) {
      extent->memory.reset();
      extent->held_in_memory.reset();
      return bytes;
    }
    lock.unlock();
    return bytes.clone();
  }
  TORCH_CHECK(false, "swap: ", extent->num_bytes, " bytes could not be read back: ", extent->error);
}

int64_t SwapArena::used_bytes() {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

int64_t SwapArena::num_prefetched() {
  const std::lock_guard lock(mutex_);
  return num_prefetched_;
}

void SwapArena::run() {
  const auto write_some = [this](char* data, size_t size, int64_t at) { return pwrite(file_, data, size, at); };
  const auto read_some = [this](char* data, size_t size, int64_t at) { return pread(file_, data, size, at); };
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    Extent* const extent = queue_.front();
    queue_.pop_front();
    const bool writing = !extent->stored;
    at::Tensor memory = extent->memory;
    lock.unlock();
    std::string error;
    if (writing) {
      error =
          transfer_all(write_some, static_cast<char*>(memory.mutable_data_ptr()), extent->num_bytes, extent->offset);
      memory.reset();
    } else {
      memory = at::empty({extent->num_bytes}, at::kChar);
      error = transfer_all(read_some, static_cast<char*>(memory.mutable_data_ptr()), extent->num_bytes, extent->offset);
    }
    lock.lock();
    if (writing) {
      in_flight_bytes_ -= extent->num_bytes;
      extent->stored = error.empty();
    }
    if (error.empty()) {
      extent->memory = writing ? at::Tensor() : std::move(memory);
      (writing ? swap_totals().bytes_written : swap_totals().bytes_read) += extent->num_bytes;
      extent->held_in_memory = writing ? nullptr : HeldBytes::make(Holder::kSwapBuffer, extent->num_bytes);
      if (writing) extent->held_in_file = HeldBytes::make(Holder::kSwapped, extent->num_bytes);
    }
    extent->error = std::move(error);
    extent->busy = false;
    done_.notify_all();
  }
}

}  // namespace qx::activation
