#include "quincunx/collectives/transport/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "quincunx/collectives/bootstrap/random_bits.h"

namespace qx::collectives {
namespace {

constexpr uint64_t kArenaMagic = 0x71782d6d63636c41;
constexpr int64_t kPageBytes = 4096;
constexpr int64_t kSmallestArena = 64 << 20;
// Pages of free buffers that are kept: what FSDP allocates in every step is neither cleared nor mapped again.
constexpr int64_t kIdleBytes = int64_t{1} << 30;

struct ArenaHeader {
  uint64_t magic = kArenaMagic;
  uint64_t nonce = 0;
};

std::mutex existing_mutex;
std::weak_ptr<SharedArena>& existing_arena() {
  static auto* arena = new std::weak_ptr<SharedArena>;  // never destroyed: buffers may outlive the statics
  return *arena;
}

Status system_error(const std::string& what) { return unavailable(what + ": " + std::strerror(errno)); }

int64_t whole_pages(int64_t size_bytes) { return (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

std::shared_ptr<SharedArena> SharedArena::existing() {
  const std::lock_guard lock(existing_mutex);
  std::shared_ptr<SharedArena> arena = existing_arena().lock();
  // After a fork it is the parent's.
  return arena && arena->address_.pid == getpid() ? arena : nullptr;
}

Result<std::shared_ptr<SharedArena>> SharedArena::of_this_process() {
  if (auto arena = existing()) return arena;
  QX_ASSIGN_OR_RETURN(std::shared_ptr<SharedArena> made, create());
  const std::lock_guard lock(existing_mutex);
  const std::shared_ptr<SharedArena> first = existing_arena().lock();
  if (first && first->address_.pid == made->address_.pid) return first;
  existing_arena() = made;
  return made;
}

Result<std::shared_ptr<SharedArena>> SharedArena::create() {
  std::shared_ptr<SharedArena> arena(new SharedArena);
  const int fd = memfd_create("quincunx-mccl-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return system_error("memfd_create");
  arena->address_ = {getpid(), fd, 0, random_bits()};
  if (fchmod(fd, 0600) != 0) return system_error("fchmod of the arena");
  // As large as the machine's memory: the file has no pages but those that are written.
  int64_t size = whole_pages(sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
  void* base = MAP_FAILED;
  for (; size >= kSmallestArena && base == MAP_FAILED; size /= 2) {
    size = whole_pages(size);
    if (ftruncate(fd, size) != 0) continue;
    base = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base != MAP_FAILED) break;
  }
  if (base == MAP_FAILED) return system_error("mmap of the arena");
  arena->base_ = static_cast<std::byte*>(base);
  arena->address_.size_bytes = size;
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return system_error("seal of the arena");
  // Without huge pages it is slower to touch and nothing else.
  static_cast<void>(madvise(base, static_cast<size_t>(size), MADV_HUGEPAGE));
  auto* header = new (base) ArenaHeader;
  header->nonce = arena->address_.nonce;
  arena->gaps_[kPageBytes] = size - kPageBytes;
  return arena;
}

SharedArena::~SharedArena() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(address_.size_bytes));
  if (address_.fd >= 0) close(static_cast<int>(address_.fd));
}

Result<std::shared_ptr<void>> SharedArena::allocate(int64_t size_bytes) {
  const int64_t size = std::max(whole_pages(size_bytes), kPageBytes);
  int64_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& each) { return each.second >= size; });
    if (gap == gaps_.end()) {
      return resource_exhausted("shared memory: no room for " + std::to_string(size_bytes) + " bytes in an arena of " +
                                std::to_string(address_.size_bytes));
    }
    offset = gap->first;
    const int64_t rest = gap->second - size;
    gaps_.erase(gap);
    if (rest > 0) gaps_[offset + size] = rest;
    idle_bytes_ = std::max<int64_t>(0, idle_bytes_ - size);
  }
  const auto give_back = [self = shared_from_this(), offset, size](void*) { self->release(offset, size); };
  return std::shared_ptr<void>(base_ + offset, give_back);
}

void SharedArena::release(int64_t offset, int64_t size_bytes) {
  if (address_.pid != getpid()) return;  // a copy that came with a fork: the parent still uses the buffer
  const std::lock_guard lock(mutex_);
  if (idle_bytes_ + size_bytes > kIdleBytes) {
    static_cast<void>(
        fallocate(static_cast<int>(address_.fd), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size_bytes));
  } else {
    idle_bytes_ += size_bytes;
  }
  auto gap = gaps_.emplace(offset, size_bytes).first;
  const auto next = std::next(gap);
  if (next != gaps_.end() && next->first == offset + size_bytes) {
    gap->second += next->second;
    gaps_.erase(next);
  }
  if (gap == gaps_.begin()) return;
  const auto before = std::prev(gap);
  if (before->first + before->second != offset) return;
  before->second += gap->second;
  gaps_.erase(gap);
}

std::optional<int64_t> SharedArena::offset_of(const void* data, int64_t size_bytes) const {
  const int64_t offset = static_cast<const std::byte*>(data) - base_;
  if (offset < kPageBytes || size_bytes < 0 || offset > address_.size_bytes - size_bytes) return std::nullopt;
  return offset;
}

Result<std::unique_ptr<ArenaView>> ArenaView::open(const ArenaAddress& address) {
  std::unique_ptr<ArenaView> view(new ArenaView);
  view->nonce_ = address.nonce;
  if (address.size_bytes < kPageBytes || address.fd < 0) return invalid_argument("the address of an arena is bad");
  view->own_ = SharedArena::existing();
  if (view->own_ && view->own_->address() == address) {
    view->base_ = view->own_->base();
    view->size_bytes_ = view->own_->address().size_bytes;
    return view;
  }
  view->own_ = nullptr;
  const std::string path = "/proc/" + std::to_string(address.pid) + "/fd/" + std::to_string(address.fd);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return system_error("open of the peer's arena");
  struct stat information{};
  const bool fits = fstat(fd, &information) == 0 && S_ISREG(information.st_mode) &&
                    information.st_size == address.size_bytes && information.st_uid == geteuid() &&
                    (fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) != 0;
  void* base =
      fits ? mmap(nullptr, static_cast<size_t>(address.size_bytes), PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0)
           : MAP_FAILED;
  close(fd);
  if (base == MAP_FAILED) return unavailable("the peer's arena cannot be mapped");
  view->base_ = static_cast<const std::byte*>(base);
  view->size_bytes_ = address.size_bytes;
  const auto* header = static_cast<const ArenaHeader*>(base);
  if (header->magic != kArenaMagic || header->nonce != address.nonce) {
    return unavailable("the peer's descriptor is another file: its process numbers are those of another namespace");
  }
  return view;
}

ArenaView::~ArenaView() {
  if (!own_ && base_ != nullptr) munmap(const_cast<std::byte*>(base_), static_cast<size_t>(size_bytes_));
}

const std::byte* ArenaView::at(int64_t offset, int64_t size_bytes) const {
  if (offset < kPageBytes || size_bytes < 0 || size_bytes > size_bytes_ || offset > size_bytes_ - size_bytes) {
    return nullptr;
  }
  return base_ + offset;
}

}  // namespace qx::collectives
