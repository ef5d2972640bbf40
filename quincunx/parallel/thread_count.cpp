#include "quincunx/parallel/thread_count.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "quincunx/base/cpu_count.h"
#include "quincunx/base/logging.h"

namespace qx {
namespace {

int count_from_environment() {
  const int available = std::min(num_available_cpus(), kMaxThreads);
  const char* text = std::getenv("QX_NUM_THREADS");
  if (text == nullptr) return available;
  const Result<int> count = parse_thread_count(text);
  if (count.ok()) return *count;
  QX_LOG_WARNING(count.status().message() + "; using " + std::to_string(available));
  return available;
}

}  // namespace

Result<int> parse_thread_count(const std::string& text) {
  int count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || stop != end || count < 1 || count > kMaxThreads) {
    return invalid_argument("QX_NUM_THREADS: expected a whole number from 1 to " + std::to_string(kMaxThreads) +
                            ", got \"" + text + "\"");
  }
  return count;
}

int default_thread_count() {
  static const int count = count_from_environment();
  return count;
}

}  // namespace qx
