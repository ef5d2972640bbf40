// What the ranks of a job know and strangers do not.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "quincunx/base/status.h"

namespace qx::collectives {

// Bytes that are overwritten when they are no longer needed.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string_view bytes) : bytes_(bytes) {}
  Secret(const Secret&) = default;
  Secret(Secret&& other) noexcept : bytes_(std::move(other.bytes_)) { other.wipe(); }
  Secret& operator=(const Secret& other);
  Secret& operator=(Secret&& other) noexcept;
  ~Secret() { wipe(); }

  bool empty() const { return bytes_.empty(); }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

 private:
  void wipe();
  std::string bytes_;
};

// A secret must have at least this many bytes: the proof of a shorter one could be searched for.
inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 4096;

// The text itself; `name` is what errors call it. Refused where it is too short or too long.
Result<Secret> make_secret(const char* name, std::string_view text);

// The content of a regular file without the white space at its end. Refused where the group or others may read or
// write it, where it belongs to another user than this process or root, and where it is too short or too long.
Result<Secret> read_secret_file(const std::string& path, const char* name = "QX_MCCL_SECRET_FILE");

// From the file that QX_MCCL_SECRET_FILE names, or else from QX_MCCL_SECRET; empty where neither is set.
Result<Secret> secret_from_environment();

}  // namespace qx::collectives
