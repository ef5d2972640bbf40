// One anonymous file (a memfd: nothing in the file system that could remain after a kill) that the ranks of a host
// share: who has joined, and a segment for each rank of the job. Whoever starts first makes it and hands its descriptor
// to the others. Pages are only used where they are written, so that room for ranks of other hosts costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "quincunx/base/status.h"

namespace qx::collectives {

class HostMemory {
 public:
  static Result<std::shared_ptr<HostMemory>> create(int world_size);
  // Takes the descriptor, which a process of the same user has sent. kDataLoss where it is no such file.
  static Result<std::shared_ptr<HostMemory>> adopt(int descriptor, int world_size);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  int descriptor() const { return fd_; }
  int world_size() const { return world_size_; }
  int64_t segment_bytes() const { return segment_bytes_; }

  // As this process. kFailedPrecondition where another has joined as this rank.
  Status join(int rank);
  bool has_joined(int rank) const;
  // What the rank's process says once nobody is to begin to write to it. Whoever calls it (Segment::call) and then does
  // not see this is seen by a look for callers after it.
  void leave(int rank);
  bool has_left(int rank) const;
  // The same for all processes that share this file, and for no others on the host that `boot_id` names. Never 0.
  uint32_t identity(const std::string& boot_id) const;
  int num_joined() const;
  // 0 where none has joined.
  int process_of(int rank) const;
  // The segment of a rank, mapped for reading and writing; to be given back with munmap.
  Result<std::byte*> map_segment(int rank) const;
  // In a child after fork.
  void close_descriptor();

 private:
  HostMemory(int fd, int world_size);
  Status map_directory();

  int fd_ = -1;
  const int world_size_;
  const int64_t segment_bytes_;
  std::byte* directory_ = nullptr;
};

}  // namespace qx::collectives
