// Memory that tensors live in: owned, aligned, shared by all views that need it to stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "quincunx/base/mapped_file.h"
#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx {

// A cache line, and a vector of the widest instruction set.
inline constexpr int64_t kStorageAlignmentBytes = 64;

struct StorageOptions {
  bool zero = false;
  // Asks the kernel for huge pages; worth it from some MiB on. Only advice: a kernel may not heed it.
  bool huge_pages = false;
};

// Held by shared_ptr; the memory ends with the last holder. Reading and copying the pointer is thread-safe.
class Storage {
 public:
  // Aligned to kStorageAlignmentBytes. Contents are undefined unless options.zero.
  static Result<std::shared_ptr<Storage>> allocate(int64_t size_bytes, StorageOptions options = {});
  // The bytes of a file without a copy. Writing to them is an error: the pages are read-only.
  static std::shared_ptr<Storage> from_file(MappedFile file);
  // Somebody else's bytes without a copy, read-only. They stay valid as long as `owner` is held; the last holder of the
  // storage lets go of it.
  static std::shared_ptr<Storage> borrow(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  const std::byte* data() const { return data_; }
  // Null if the storage is read-only.
  std::byte* mutable_data() { return read_only_ ? nullptr : const_cast<std::byte*>(data_); }
  bool read_only() const { return read_only_; }
  int64_t size_bytes() const { return size_bytes_; }

  // A contiguous tensor that starts at `offset_bytes`, which must be a multiple of the element's size, and ends within
  // the storage. The view does not hold the storage. Do not write through a view of a read-only storage.
  Result<TensorView> view(DType dtype, std::span<const int64_t> shape, int64_t offset_bytes = 0) const;

 private:
  Storage() = default;

  const std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
  bool read_only_ = false;
  std::shared_ptr<const void> owner_;
};

}  // namespace qx
