#include "quincunx/collectives/store/file_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace qx::collectives {
namespace {

constexpr std::chrono::milliseconds kPollInterval{2};

}  // namespace

Result<std::shared_ptr<Store>> FileStore::open(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return unavailable("directory: cannot make \"" + directory + "\": " + std::strerror(errno));
  }
  return std::shared_ptr<Store>(new FileStore(directory));
}

std::string FileStore::path_of(const std::string& key) const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = directory_ + "/";
  for (const char c : key) {  // any key, and no two the same name
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    if (plain)
      name += c;
    else
      name += {'_', kDigits[static_cast<uint8_t>(c) >> 4], kDigits[c & 15]};
  }
  return name;
}

Status FileStore::set(const std::string& key, const std::string& value) {
  static std::atomic<uint64_t> counter{0};
  const std::string path = path_of(key);
  const std::string temporary = path + "." + std::to_string(getpid()) + "." + std::to_string(counter++);
  {
    std::ofstream file(temporary, std::ios::binary);
    file << value;
    if (!file.flush()) return unavailable("cannot write \"" + temporary + "\"");
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return unavailable("cannot rename to \"" + path + "\": " + std::strerror(errno));
  }
  return ok_status();
}

Result<std::string> FileStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const std::string path = path_of(key);
  while (true) {
    std::ifstream file(path, std::ios::binary);
    if (file) {
      std::ostringstream content;
      content << file.rdbuf();
      return content.str();
    }
    if (std::chrono::steady_clock::now() >= deadline) return deadline_exceeded("key \"" + key + "\" is not there");
    std::this_thread::sleep_for(kPollInterval);
  }
}

std::string FileStore::identity() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(directory_, error);
  return "file/" + (error ? directory_ : path.string());
}

}  // namespace qx::collectives
