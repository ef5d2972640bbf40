// A whole file in memory, read-only, without reading it first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "quincunx/base/status.h"

namespace qx {

// How the bytes will be read: the kernel reads ahead, or drops what it holds, accordingly.
enum class FileAccess { kNormal, kSequential, kRandom, kWillNeed, kDontNeed };

// Movable, not copyable; the mapping ends with it. The bytes may be read from several threads. The file must not become
// shorter meanwhile: reading past its new end would raise SIGBUS. The descriptor is closed at once; the file may be
// deleted or replaced.
class MappedFile {
 public:
  // A regular file; one of no bytes gives an empty span.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_bytes_)}; }
  int64_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

  // Advice for [offset, offset + size), widened to pages. The range must lie in the file.
  Status advise(FileAccess access, int64_t offset, int64_t size) const;
  Status advise(FileAccess access) const { return advise(access, 0, size_bytes_); }

 private:
  MappedFile(std::string path, const std::byte* data, int64_t size_bytes)
      : path_(std::move(path)), data_(data), size_bytes_(size_bytes) {}

  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace qx
