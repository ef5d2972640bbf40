#include "quincunx/parallel/thread_count.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace qx {
namespace {

int count_from_environment() {
  const int available = std::min(available_cpus(), kMaxThreads);
  const char* text = std::getenv("QX_NUM_THREADS");
  if (text == nullptr) return available;
  const Result<int> count = parse_thread_count(text);
  if (count.ok()) return *count;
  std::fprintf(stderr, "quincunx: %s; using %d\n", count.status().message().c_str(), available);
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

int available_cpus() {
  static const int count = [] {
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof(mask), &mask) != 0 ? 1 : std::max(1, CPU_COUNT(&mask));
  }();
  return count;
}

int default_thread_count() {
  static const int count = count_from_environment();
  return count;
}

}  // namespace qx
