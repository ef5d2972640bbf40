// Invariants. A failed check is a bug in this library, never bad input: it prints where and why, then aborts.
#pragma once

#include <string_view>

namespace qx::detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view message);
}  // namespace qx::detail

#define QX_CHECK(condition) QX_CHECK_MESSAGE(condition, "")
#define QX_CHECK_MESSAGE(condition, message)           \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::qx::detail::check_failed(__FILE__, __LINE__, #condition, message))
