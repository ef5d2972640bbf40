// Scratch memory for one computation: allocation moves a pointer, reset() frees everything at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/tensor/storage.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx {

// Hands out blocks aligned to kStorageAlignmentBytes, each rounded up to a multiple of it. Takes memory from the system
// in pieces as it grows; the first reset() after a growth replaces them by one piece that holds all, so that a repeated
// computation allocates nothing from its third round on. Not thread-safe: one arena a thread.
class Arena {
 public:
  // The arena never holds more than `budget_bytes` for blocks in use; beyond it, allocations fail.
  explicit Arena(int64_t budget_bytes);

  // Undefined contents, valid until reset(). RESOURCE_EXHAUSTED beyond the budget or where the system has no memory.
  Result<std::byte*> allocate(int64_t size_bytes);
  // A contiguous tensor in a block of its own.
  Result<TensorView> allocate_tensor(DType dtype, std::span<const int64_t> shape);

  // All blocks become invalid. Keeps the memory.
  void reset();

  int64_t budget_bytes() const { return budget_bytes_; }
  // Of the blocks since the last reset, rounding included.
  int64_t used_bytes() const { return used_bytes_; }
  // The largest used_bytes() ever seen.
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  Status add_piece(int64_t least_bytes);

  int64_t budget_bytes_;
  int64_t used_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  std::vector<std::shared_ptr<Storage>> pieces_;  // the last one is being filled
  int64_t piece_used_bytes_ = 0;
};

}  // namespace qx
