#include "quincunx/compiler/jit/object_cache.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/SHA256.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "quincunx/base/mapped_file.h"

namespace qx::compiler {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".qxo";
constexpr char kMagic[8] = {'Q', 'X', 'O', 'B', 'J', '0', '0', '1'};

struct FileHeader {
  char magic[8];
  uint8_t digest[32];  // of the key and the object
};

std::array<uint8_t, 32> contentDigest(const std::string& key, std::span<const std::byte> object) {
  llvm::SHA256 hash;
  hash.update(key);
  hash.update(llvm::ArrayRef(reinterpret_cast<const uint8_t*>(object.data()), object.size()));
  return hash.final();
}

std::string temporaryName() {
  static std::atomic<uint64_t> count{0};
  return ".writing-" + std::to_string(getpid()) + "-" + std::to_string(count.fetch_add(1));
}

}  // namespace

std::string digestOf(std::string_view text) {
  const llvm::ArrayRef bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  return llvm::toHex(llvm::SHA256::hash(bytes), /*LowerCase=*/true);
}

std::string cacheDirectory(const std::string& requested) {
  const char* chosen = std::getenv("QX_CACHE_DIR");
  const std::string wanted = !requested.empty() ? requested : chosen != nullptr ? chosen : "";
  if (wanted == "none") return "";
  if (!wanted.empty()) return wanted;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    return std::string(cache) + "/quincunx";
  }
  const char* home = std::getenv("HOME");
  return home == nullptr || home[0] != '/' ? "" : std::string(home) + "/.cache/quincunx";
}

Status ObjectCache::checkOwner() const {
  // Whoever can write here can run code in this process.
  struct stat status;
  if (::stat(directory_.c_str(), &status) != 0) return not_found("no cache folder " + directory_);
  if (status.st_uid != ::geteuid() || (status.st_mode & S_IWOTH) != 0) {
    return failed_precondition("cache_directory " + directory_ +
                               ": expected a folder of this user that others cannot write to");
  }
  return ok_status();
}

Result<std::vector<std::byte>> ObjectCache::load(const std::string& key) const {
  QX_RETURN_IF_ERROR(checkOwner());
  const std::string path = directory_ + "/" + key + std::string(kSuffix);
  std::error_code error;
  if (!fs::exists(path, error)) return not_found(path + " does not exist");
  QX_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  FileHeader header;
  if (file.bytes().size() > sizeof(header)) {
    std::memcpy(&header, file.bytes().data(), sizeof(header));
    const auto object = file.bytes().subspan(sizeof(header));
    const auto digest = contentDigest(key, object);
    if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) == 0 && std::ranges::equal(header.digest, digest)) {
      fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // recently used
      return std::vector<std::byte>(object.begin(), object.end());
    }
  }
  fs::remove(path, error);
  return data_loss(path + " is damaged; it was deleted");
}

Status ObjectCache::store(const std::string& key, std::span<const std::byte> object) const {
  std::error_code error;
  if (!fs::exists(directory_, error)) {
    fs::create_directories(directory_, error);
    if (error) return failed_precondition("cache_directory " + directory_ + ": " + error.message());
    fs::permissions(directory_, fs::perms::owner_all, error);
  }
  QX_RETURN_IF_ERROR(checkOwner());
  FileHeader header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  const auto digest = contentDigest(key, object);
  std::ranges::copy(digest, header.digest);
  const std::string temporary = directory_ + "/" + temporaryName();
  {
    std::ofstream file(temporary, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    file.write(reinterpret_cast<const char*>(object.data()), static_cast<std::streamsize>(object.size()));
    if (!file.flush()) {
      fs::remove(temporary, error);
      return resource_exhausted("cannot write " + temporary);
    }
  }
  fs::rename(temporary, directory_ + "/" + key + std::string(kSuffix), error);
  if (error) return failed_precondition("cannot rename " + temporary + ": " + error.message());
  removeOldest();
  return ok_status();
}

void ObjectCache::removeOldest() const {
  struct Entry {
    fs::file_time_type time;
    fs::path path;
    int64_t bytes;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(directory_, error)) {
    std::error_code vanished;
    const auto bytes = static_cast<int64_t>(file.file_size(vanished));
    const auto time = file.last_write_time(vanished);
    if (vanished || file.path().extension() != kSuffix) continue;
    entries.push_back({time, file.path(), bytes});
    total += bytes;
  }
  if (total <= limit_bytes_) return;
  std::ranges::sort(entries, {}, &Entry::time);
  for (const Entry& entry : entries) {
    // A margin, so that the next writer does not have to delete again.
    if (total <= limit_bytes_ - limit_bytes_ / 8) break;
    if (fs::remove(entry.path, error)) total -= entry.bytes;
  }
}

}  // namespace qx::compiler
