#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "quincunx/graph/qxm.h"
#include "quincunx/graph/qxm_encoding.h"
#include "quincunx/graph/qxm_format.h"

namespace qx::graph {
namespace {

using Bytes = std::span<const std::byte>;

Status file_error(const std::string& path, const char* action, int error) {
  std::string message =
      "path: cannot " + std::string(action) + " \"" + path + "\": " + std::generic_category().message(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE: return resource_exhausted(std::move(message));
    case ENOENT:
    case ENOTDIR: return not_found(std::move(message));
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
    case ENAMETOOLONG: return invalid_argument(std::move(message));
    default: return unavailable(std::move(message));
  }
}

// A new file beside the one that it will replace; gone again unless commit() succeeded.
class ReplacingFile {
 public:
  explicit ReplacingFile(const std::string& path) : path_(path) {
    static std::atomic<int> count = 0;
    temporary_ = path + "." + std::to_string(::getpid()) + "." + std::to_string(count.fetch_add(1)) + ".tmp";
  }
  ~ReplacingFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;

  Status create() {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd_ < 0 ? file_error(path_, "write", errno) : ok_status();
  }

  Status write_at(Bytes bytes, int64_t offset) {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return file_error(path_, "write", errno);
      bytes = bytes.subspan(static_cast<size_t>(written));
      offset += written;
    }
    return ok_status();
  }

  Status commit(int64_t size) {
    if (::ftruncate(fd_, size) != 0 || ::fsync(fd_) != 0) return file_error(path_, "write", errno);
    struct stat info{};
    if (::stat(path_.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return file_error(path_, "replace", EISDIR);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return file_error(path_, "replace", errno);
    ::close(fd_);
    fd_ = -1;
    return ok_status();
  }

 private:
  const std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

int64_t round_up(int64_t offset) { return (offset + qxm::kAlignment - 1) / qxm::kAlignment * qxm::kAlignment; }

Status check(const Qxm& contents) {
  std::set<std::string> names;
  for (const Graph& graph : contents.methods) {
    if (graph.name.empty()) return invalid_argument("methods: expected graphs with names, got one without");
    if (!names.insert(graph.name).second) {
      return invalid_argument("methods: expected different names, got \"" + graph.name + "\" twice");
    }
    QX_RETURN_IF_ERROR(verify(graph));
  }
  const auto metadata = nlohmann::json::parse(contents.metadata, nullptr, /*allow_exceptions=*/false);
  if (!metadata.is_object()) return invalid_argument("metadata: expected a JSON object, got " + contents.metadata);
  return ok_status();
}

class Writer {
 public:
  explicit Writer(ReplacingFile& file) : file_(file) {}

  // Sections start behind the header and a table of `count` entries.
  void reserve(size_t count) {
    position_ = round_up(static_cast<int64_t>(sizeof(qxm::Header) + count * sizeof(qxm::Section)));
  }

  Status text(qxm::SectionKind kind, const std::string& bytes) {
    begin(kind);
    QX_RETURN_IF_ERROR(append(std::as_bytes(std::span(bytes))));
    end();
    return ok_status();
  }

  Status weights(const qxm::WeightTable& table) {
    begin(qxm::kWeights);
    for (const qxm::Weight& weight : table.weights()) {
      QX_RETURN_IF_ERROR(append({weight.storage->data() + weight.source_offset, static_cast<size_t>(weight.size)}));
      const std::array<std::byte, qxm::kAlignment> zeros = {};
      QX_RETURN_IF_ERROR(append(std::span(zeros).first(static_cast<size_t>(round_up(weight.size) - weight.size))));
    }
    end();
    return ok_status();
  }

  Status finish() {
    qxm::Header header;
    header.file_bytes = static_cast<uint64_t>(position_);
    header.num_sections = static_cast<uint32_t>(sections_.size());
    const Bytes table = std::as_bytes(std::span(sections_));
    header.checksum = qxm::checksum(table, qxm::checksum(std::as_bytes(std::span(&header, 1))));
    QX_RETURN_IF_ERROR(file_.write_at(std::as_bytes(std::span(&header, 1)), 0));
    QX_RETURN_IF_ERROR(file_.write_at(table, sizeof(header)));
    return file_.commit(position_);
  }

 private:
  void begin(qxm::SectionKind kind) {
    sections_.push_back({.kind = kind, .flags = qxm::kRequired, .offset = static_cast<uint64_t>(position_)});
  }
  Status append(Bytes bytes) {
    sections_.back().checksum = qxm::checksum(bytes, sections_.back().checksum);
    QX_RETURN_IF_ERROR(file_.write_at(bytes, position_));
    position_ += static_cast<int64_t>(bytes.size());
    return ok_status();
  }
  void end() {
    sections_.back().size = static_cast<uint64_t>(position_) - sections_.back().offset;
    position_ = round_up(position_);
  }

  ReplacingFile& file_;
  std::vector<qxm::Section> sections_;
  int64_t position_ = 0;
};

}  // namespace

Status write_qxm(const std::string& path, const Qxm& contents) {
  QX_RETURN_IF_ERROR(check(contents));
  if (path.empty() || path.find('\0') != std::string::npos)
    return invalid_argument("path: expected the name of a file");
  const qxm::WeightTable weights(contents.methods);
  const std::string methods = qxm::encode_methods(contents.methods, weights);
  if (methods.size() > qxm::kMaxMethodsBytes) {
    return invalid_argument("methods: expected graphs of at most " + std::to_string(qxm::kMaxMethodsBytes) +
                            " bytes without their weights, got " + std::to_string(methods.size()));
  }
  ReplacingFile file(path);
  QX_RETURN_IF_ERROR(file.create());
  constexpr size_t kNumSections = 4;
  Writer writer(file);
  writer.reserve(kNumSections);
  // What is read first stands first; the weights, which may be large, last.
  QX_RETURN_IF_ERROR(writer.text(qxm::kMetadata, contents.metadata));
  QX_RETURN_IF_ERROR(writer.text(qxm::kMethods, methods));
  QX_RETURN_IF_ERROR(writer.text(qxm::kTokenizer, contents.tokenizer));
  QX_RETURN_IF_ERROR(writer.weights(weights));
  return writer.finish();
}

}  // namespace qx::graph
