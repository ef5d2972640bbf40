#include "quincunx/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace qx::detail {

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
  std::fprintf(stderr, "quincunx: %s:%d: check failed: %s %.*s\n", file, line, condition,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace qx::detail
