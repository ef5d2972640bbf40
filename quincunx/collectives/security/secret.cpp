#include "quincunx/collectives/security/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace qx::collectives {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

Status check_length(const char* what, size_t num_bytes) {
  if (num_bytes >= kMinSecretBytes && num_bytes <= kMaxSecretBytes) return ok_status();
  return invalid_argument(std::string(what) + ": expected a secret of " + std::to_string(kMinSecretBytes) + " to " +
                          std::to_string(kMaxSecretBytes) + " bytes, got " + std::to_string(num_bytes));
}

Status check_file(const char* variable, const std::string& path, const struct stat& file) {
  const std::string name = variable + (": \"" + path) + "\"";
  if (!S_ISREG(file.st_mode)) return invalid_argument(name + " is no regular file");
  if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    char mode[8];
    snprintf(mode, sizeof(mode), "%04o", file.st_mode & 07777u);
    return invalid_argument(name + " has mode " + mode + ", expected one that shuts out group and others (chmod 600)");
  }
  if (file.st_uid != geteuid() && file.st_uid != 0) {
    return invalid_argument(name + " belongs to user " + std::to_string(file.st_uid) + ", expected " +
                            std::to_string(geteuid()) + " or root");
  }
  if (file.st_size > static_cast<off_t>(kMaxSecretBytes)) return check_length(variable, file.st_size);
  return ok_status();
}

}  // namespace

void Secret::wipe() {
  OPENSSL_cleanse(bytes_.data(), bytes_.size());
  bytes_.clear();
}

Secret& Secret::operator=(const Secret& other) {
  if (this == &other) return *this;
  wipe();
  bytes_ = other.bytes_;
  return *this;
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this == &other) return *this;
  wipe();
  bytes_ = std::move(other.bytes_);
  other.wipe();
  return *this;
}

Result<Secret> make_secret(const char* name, std::string_view text) {
  QX_RETURN_IF_ERROR(check_length(name, text.size()));
  return Secret(text);
}

Result<Secret> read_secret_file(const std::string& path, const char* name) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat status = {};
  if (file.fd() < 0 || fstat(file.fd(), &status) != 0) {
    return invalid_argument(std::string(name) + ": cannot open \"" + path + "\": " + std::strerror(errno));
  }
  QX_RETURN_IF_ERROR(check_file(name, path, status));
  std::string text(kMaxSecretBytes + 1, '\0');
  size_t size = 0;
  ssize_t got = 0;
  while (size < text.size() && (got = read(file.fd(), text.data() + size, text.size() - size)) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return invalid_argument(std::string(name) + ": cannot read \"" + path + "\": " + std::strerror(errno));
    size += static_cast<size_t>(got);
  }
  while (size > 0 && std::strchr(" \t\r\n", text[size - 1]) != nullptr) --size;
  const Status length = check_length(name, size);
  Secret secret(std::string_view(text).substr(0, size));
  OPENSSL_cleanse(text.data(), text.size());
  if (!length.ok()) return length;
  return secret;
}

Result<Secret> secret_from_environment() {
  const char* path = std::getenv("QX_MCCL_SECRET_FILE");
  if (path != nullptr && *path != '\0') return read_secret_file(path);
  const char* text = std::getenv("QX_MCCL_SECRET");
  if (text == nullptr || *text == '\0') return Secret();
  return make_secret("QX_MCCL_SECRET", text);
}

}  // namespace qx::collectives
