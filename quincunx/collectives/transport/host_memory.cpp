#include "quincunx/collectives/transport/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "quincunx/base/check.h"
#include "quincunx/base/fnv1a.h"
#include "quincunx/collectives/transport/shared_memory.h"

namespace qx::collectives {
namespace {

constexpr uint64_t kMagic = 0x71782d6d63636c32;
constexpr int64_t kPage = 4096;

struct DirectoryHeader {
  uint64_t magic;
  int64_t world_size;
  int64_t segment_bytes;
  std::atomic<int64_t> num_joined;
};
using Joined = std::atomic<int32_t>;  // the process number, negative once it has left
constexpr int64_t kHeaderBytes = 64;
static_assert(sizeof(DirectoryHeader) <= kHeaderBytes && Joined::is_always_lock_free);

int64_t whole_pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
int64_t directory_bytes(int world_size) {
  return whole_pages(kHeaderBytes + world_size * static_cast<int64_t>(sizeof(Joined)));
}

DirectoryHeader& header_of(std::byte* directory) {
  QX_CHECK(directory != nullptr);
  return *reinterpret_cast<DirectoryHeader*>(directory);
}
Joined& joined_of(std::byte* directory, int rank) {
  return *reinterpret_cast<Joined*>(directory + kHeaderBytes + rank * static_cast<int64_t>(sizeof(Joined)));
}

Status system_error(const std::string& what) { return unavailable(what + ": " + std::strerror(errno)); }

}  // namespace

HostMemory::HostMemory(int fd, int world_size)
    : fd_(fd), world_size_(world_size), segment_bytes_(whole_pages(shared_segment_bytes(world_size))) {}

HostMemory::~HostMemory() {
  if (directory_ != nullptr) munmap(directory_, static_cast<size_t>(directory_bytes(world_size_)));
  close_descriptor();
}

void HostMemory::close_descriptor() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Status HostMemory::map_directory() {
  void* base =
      mmap(nullptr, static_cast<size_t>(directory_bytes(world_size_)), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (base == MAP_FAILED) return system_error("mmap of the host's shared memory");
  directory_ = static_cast<std::byte*>(base);
  return ok_status();
}

Result<std::shared_ptr<HostMemory>> HostMemory::create(int world_size) {
  const int fd = memfd_create("quincunx-mccl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return system_error("memfd_create");
  std::shared_ptr<HostMemory> memory(new HostMemory(fd, world_size));
  if (fchmod(fd, 0600) != 0) return system_error("fchmod of the host's shared memory");
  if (ftruncate(fd, directory_bytes(world_size) + world_size * memory->segment_bytes_) != 0) {
    return system_error("ftruncate of the host's shared memory");
  }
  // Nobody must be able to shrink it: touching the lost pages would kill a process.
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return system_error("seal");
  QX_RETURN_IF_ERROR(memory->map_directory());
  DirectoryHeader& header = header_of(memory->directory_);
  header.magic = kMagic;
  header.world_size = world_size;
  header.segment_bytes = memory->segment_bytes_;
  return memory;
}

Result<std::shared_ptr<HostMemory>> HostMemory::adopt(int descriptor, int world_size) {
  std::shared_ptr<HostMemory> memory(new HostMemory(descriptor, world_size));
  struct stat information{};
  if (fstat(descriptor, &information) != 0) return system_error("fstat of the host's shared memory");
  if (!S_ISREG(information.st_mode) || information.st_uid != geteuid()) {
    return data_loss("the host's shared memory is not a file of this user");
  }
  const int64_t expected = directory_bytes(world_size) + world_size * memory->segment_bytes_;
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (information.st_size != expected || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return data_loss("the host's shared memory has " + std::to_string(information.st_size) + " bytes, expected " +
                     std::to_string(expected) + " that cannot shrink");
  }
  QX_RETURN_IF_ERROR(memory->map_directory());
  const DirectoryHeader& header = header_of(memory->directory_);
  if (header.magic != kMagic || header.world_size != world_size || header.segment_bytes != memory->segment_bytes_) {
    return data_loss("the host's shared memory is of another job");
  }
  return memory;
}

Status HostMemory::join(int rank) {
  int32_t nobody = 0;
  if (!joined_of(directory_, rank).compare_exchange_strong(nobody, getpid(), std::memory_order_acq_rel)) {
    return failed_precondition("process " + std::to_string(nobody) + " of this host has joined as rank " +
                               std::to_string(rank));
  }
  header_of(directory_).num_joined.fetch_add(1, std::memory_order_acq_rel);
  return ok_status();
}

int HostMemory::process_of(int rank) const {
  return std::abs(joined_of(directory_, rank).load(std::memory_order_acquire));
}

void HostMemory::leave(int rank) {
  joined_of(directory_, rank).store(-getpid(), std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool HostMemory::has_left(int rank) const { return joined_of(directory_, rank).load(std::memory_order_seq_cst) < 0; }

bool HostMemory::has_joined(int rank) const { return process_of(rank) != 0; }

uint32_t HostMemory::identity(const std::string& boot_id) const {
  struct stat information{};
  if (fstat(fd_, &information) != 0) return 1;
  const uint64_t hash =
      fnv1a(boot_id + "/" + std::to_string(information.st_dev) + "/" + std::to_string(information.st_ino));
  const auto folded = static_cast<uint32_t>(hash ^ (hash >> 32));
  return folded != 0 ? folded : 1;
}

int HostMemory::num_joined() const {
  return static_cast<int>(header_of(directory_).num_joined.load(std::memory_order_acquire));
}

Result<std::byte*> HostMemory::map_segment(int rank) const {
  const int64_t offset = directory_bytes(world_size_) + rank * segment_bytes_;
  void* base = mmap(nullptr, static_cast<size_t>(segment_bytes_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    fd_, offset);
  if (base == MAP_FAILED) return system_error("mmap of the shared segment of rank " + std::to_string(rank));
  return static_cast<std::byte*>(base);
}

}  // namespace qx::collectives
