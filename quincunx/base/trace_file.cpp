#include "quincunx/base/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <system_error>

namespace qx {
namespace {

constexpr std::string_view kHead = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
constexpr std::string_view kTail = "\n]}\n";

Status file_error(const std::string& path, const char* action) {
  return unavailable("path: cannot " + std::string(action) + " \"" + path +
                     "\": " + std::generic_category().message(errno));
}

// Length of the UTF-8 sequence at the start of `text`; 0 if there is none.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and values beyond U+10FFFF show in the second byte.
  const bool bad = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
                   (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90);
  return bad ? 0 : length;
}

void append_text(std::string& json, std::string_view text) {
  json += '"';
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const auto first = static_cast<uint8_t>(text[0]);
    if (length == 0) {
      json += '?';
    } else if (first < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", first);
      json += escape;
    } else {
      if (first == '"' || first == '\\') json += '\\';
      json += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  json += '"';
}

// Microseconds with three decimals.
void append_microseconds(std::string& json, const char* key, int64_t nanoseconds) {
  char text[64];
  std::snprintf(text, sizeof(text), ",\"%s\":%" PRId64 ".%03d", key, nanoseconds / 1000,
                static_cast<int>(nanoseconds % 1000));
  json += text;
}

void append_place(std::string& json, int64_t process_id, int64_t thread_id) {
  json += ",\"pid\":" + std::to_string(process_id) + ",\"tid\":" + std::to_string(thread_id);
}

Status write_at(int file, const std::string& path, std::string_view text, off_t offset) {
  while (!text.empty()) {
    const ssize_t written = ::pwrite(file, text.data(), text.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error(path, "write");
    text.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return ok_status();
}

// Opens the file and locks it until the end of the scope.
class LockedFile {
 public:
  LockedFile(const std::string& path, int flags) : file_(::open(path.c_str(), flags | O_RDWR | O_CLOEXEC, 0666)) {
    while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~LockedFile() {
    if (file_ >= 0) ::close(file_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  int get() const { return file_; }

 private:
  const int file_;
};

}  // namespace

void append_event(std::string& json, const TraceEvent& event, int64_t process_id, int64_t thread_id) {
  json += "{\"name\":";
  append_text(json, event.name);
  json += std::string(",\"ph\":\"") + event.phase + '"';
  if (*event.category != '\0') {
    json += ",\"cat\":";
    append_text(json, event.category);
  }
  append_microseconds(json, "ts", event.time_ns);
  if (event.phase == 'X') append_microseconds(json, "dur", event.duration_ns);
  if (event.phase == 'i') json += ",\"s\":\"t\"";
  append_place(json, process_id, thread_id);
  if (event.phase == 'C') {
    char value[40];
    std::snprintf(value, sizeof(value), "%.17g", event.value);
    json += std::string(",\"args\":{\"value\":") + value + '}';
  }
  json += "},\n";
}

void append_name(std::string& json, const char* kind, std::string_view name, int64_t process_id, int64_t thread_id) {
  json += std::string("{\"name\":\"") + kind + "\",\"ph\":\"M\"";
  append_place(json, process_id, thread_id);
  json += ",\"args\":{\"name\":";
  append_text(json, name);
  json += "}},\n";
}

void append_dropped(std::string& json, int64_t count, int64_t time_ns, int64_t process_id) {
  json += "{\"name\":\"dropped events\",\"ph\":\"i\",\"s\":\"p\"";
  append_microseconds(json, "ts", time_ns);
  append_place(json, process_id, 0);
  json += ",\"args\":{\"count\":" + std::to_string(count) + "}},\n";
}

Status create_trace_file(const std::string& path) {
  const LockedFile file(path, O_CREAT);
  if (file.get() < 0) return file_error(path, "open");
  if (::ftruncate(file.get(), 0) != 0) return file_error(path, "empty");
  return write_at(file.get(), path, std::string(kHead) + std::string(kTail), 0);
}

Status append_to_trace_file(const std::string& path, std::string events) {
  if (events.empty()) return ok_status();
  events.resize(events.size() - 2);  // the last ",\n"
  const LockedFile file(path, 0);
  if (file.get() < 0) return file_error(path, "open");
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return file_error(path, "read the size of");
  const auto empty_size = static_cast<off_t>(kHead.size() + kTail.size());
  const off_t offset = info.st_size - static_cast<off_t>(kTail.size());
  char tail[kTail.size()];
  const bool ours = info.st_size >= empty_size && ::pread(file.get(), tail, sizeof(tail), offset) == sizeof(tail) &&
                    std::string_view(tail, sizeof(tail)) == kTail;
  if (!ours) return data_loss("path: \"" + path + "\" is no longer the trace that was started; its end is missing");
  const std::string_view separator = info.st_size == empty_size ? "" : ",\n";
  return write_at(file.get(), path, std::string(separator) + events + std::string(kTail), offset);
}

}  // namespace qx
