// Compiled kernels between processes: a folder with one file for each. Writers race by rename, readers check a digest,
// and the oldest files go when there are too many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::compiler {

// 64 hexadecimal digits of the SHA-256 of `text`.
std::string digestOf(std::string_view text);

// The folder that FuseOptions::cache_directory means: itself, else QX_CACHE_DIR, else XDG_CACHE_HOME/quincunx, else
// ~/.cache/quincunx; empty for "none", or where there is no home.
std::string cacheDirectory(const std::string& requested);

// Thread-safe, and safe beside other processes on the same folder.
class ObjectCache {
 public:
  static constexpr int64_t kDefaultLimitBytes = int64_t{256} << 20;

  explicit ObjectCache(std::string directory, int64_t limit_bytes = kDefaultLimitBytes)
      : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

  // NOT_FOUND if there is no such file, DATA_LOSS if it is not what store() wrote under `key` (it is deleted then),
  // FAILED_PRECONDITION if the folder belongs to somebody else or others may write to it.
  Result<std::vector<std::byte>> load(const std::string& key) const;
  // Makes the folder, readable by its owner alone, where there is none.
  Status store(const std::string& key, std::span<const std::byte> object) const;

 private:
  Status checkOwner() const;
  void removeOldest() const;

  std::string directory_;
  int64_t limit_bytes_;
};

}  // namespace qx::compiler
