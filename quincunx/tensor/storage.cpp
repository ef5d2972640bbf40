#include "quincunx/tensor/storage.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

namespace qx {
namespace {

constexpr int64_t kHugePageBytes = 2 * 1024 * 1024;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

Result<std::shared_ptr<Storage>> Storage::allocate(int64_t size_bytes, StorageOptions options) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() - kHugePageBytes;
  if (size_bytes < 0 || size_bytes > kLargest) {
    return invalid_argument("size_bytes: expected 0 to " + std::to_string(kLargest) + ", got " +
                            std::to_string(size_bytes));
  }
  std::shared_ptr<Storage> storage(new Storage);
  if (size_bytes == 0) return storage;
  const int64_t alignment = options.huge_pages ? kHugePageBytes : kStorageAlignmentBytes;
  const auto rounded = static_cast<size_t>(round_up(size_bytes, alignment));
  void* data = std::aligned_alloc(static_cast<size_t>(alignment), rounded);
  if (data == nullptr) {
    return resource_exhausted("size_bytes: the system has no " + std::to_string(size_bytes) + " bytes of memory left");
  }
  if (options.huge_pages) ::madvise(data, rounded, MADV_HUGEPAGE);
  if (options.zero) std::memset(data, 0, static_cast<size_t>(size_bytes));
  storage->data_ = static_cast<std::byte*>(data);
  storage->size_bytes_ = size_bytes;
  return storage;
}

std::shared_ptr<Storage> Storage::from_file(MappedFile file) {
  auto owner = std::make_shared<const MappedFile>(std::move(file));
  const std::span<const std::byte> bytes = owner->bytes();
  return borrow(bytes, std::move(owner));
}

std::shared_ptr<Storage> Storage::borrow(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  std::shared_ptr<Storage> storage(new Storage);
  storage->read_only_ = true;
  storage->owner_ = std::move(owner);
  storage->data_ = bytes.data();
  storage->size_bytes_ = static_cast<int64_t>(bytes.size());
  return storage;
}

Storage::~Storage() {
  if (!read_only_) std::free(const_cast<std::byte*>(data_));
}

Result<TensorView> Storage::view(DType dtype, std::span<const int64_t> shape, int64_t offset_bytes) const {
  const int64_t element = dtype_size_bytes(dtype);
  if (offset_bytes < 0 || offset_bytes > size_bytes_ || offset_bytes % element != 0) {
    return invalid_argument("offset_bytes: expected a multiple of " + std::to_string(element) + " from 0 to " +
                            std::to_string(size_bytes_) + ", got " + std::to_string(offset_bytes));
  }
  // An empty storage has no address, and an empty tensor needs none.
  auto* address = data_ == nullptr ? nullptr : const_cast<std::byte*>(data_) + offset_bytes;
  QX_ASSIGN_OR_RETURN(const TensorView view, TensorView::contiguous(address, dtype, shape));
  if (view.size_bytes() > size_bytes_ - offset_bytes) {
    return invalid_argument("shape: " + view.to_string() + " needs " + std::to_string(view.size_bytes()) +
                            " bytes at offset " + std::to_string(offset_bytes) + ", the storage has " +
                            std::to_string(size_bytes_));
  }
  return view;
}

}  // namespace qx
