#include "quincunx/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace qx {
namespace {

Status file_error(const std::string& path, const char* action, int error) {
  std::string message =
      "path: cannot " + std::string(action) + " \"" + path + "\": " + std::generic_category().message(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR: return not_found(std::move(message));
    case EACCES:
    case EPERM:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG: return invalid_argument(std::move(message));
    case ENOMEM:
    case EMFILE:
    case ENFILE: return resource_exhausted(std::move(message));
    default: return unavailable(std::move(message));
  }
}

class Descriptor {
 public:
  // O_NONBLOCK: opening a pipe would wait for a writer. It has no effect on regular files.
  explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

int advice_of(FileAccess access) {
  switch (access) {
    case FileAccess::kNormal: return MADV_NORMAL;
    case FileAccess::kSequential: return MADV_SEQUENTIAL;
    case FileAccess::kRandom: return MADV_RANDOM;
    case FileAccess::kWillNeed: return MADV_WILLNEED;
    case FileAccess::kDontNeed: return MADV_DONTNEED;
  }
  QX_CHECK_MESSAGE(false, "an enumerator of FileAccess");
  return MADV_NORMAL;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return invalid_argument("path: expected the name of a file, got " +
                            std::string(path.empty() ? "an empty string" : "a string with a zero byte"));
  }
  const Descriptor file(path);
  if (file.get() < 0) return file_error(path, "open", errno);
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return file_error(path, "read the size of", errno);
  if (!S_ISREG(info.st_mode)) {
    const std::string kind = S_ISDIR(info.st_mode) ? "the directory" : "the special file";
    return invalid_argument("path: expected a regular file, got " + kind + " \"" + path + "\"");
  }
  if (info.st_size == 0) return MappedFile(path, nullptr, 0);
  void* data = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return file_error(path, "map", errno);
  return MappedFile(path, static_cast<const std::byte*>(data), info.st_size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_bytes_));
}

Status MappedFile::advise(FileAccess access, int64_t offset, int64_t size) const {
  if (offset < 0 || size < 0 || offset > size_bytes_ || size > size_bytes_ - offset) {
    return invalid_argument("offset, size: expected a range within the " + std::to_string(size_bytes_) +
                            " bytes of \"" + path_ + "\", got " + std::to_string(offset) + ", " + std::to_string(size));
  }
  if (size == 0) return ok_status();
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t begin = offset / page * page;
  void* address = const_cast<std::byte*>(data_) + begin;
  if (::madvise(address, static_cast<size_t>(offset + size - begin), advice_of(access)) != 0) {
    return file_error(path_, "advise on", errno);
  }
  return ok_status();
}

}  // namespace qx
