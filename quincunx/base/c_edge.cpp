#include "quincunx/base/c_edge.h"

namespace qx {
namespace {

static_assert(static_cast<int>(StatusCode::kInternal) == QX_INTERNAL);

std::string& last_error() {
  thread_local std::string message;
  return message;
}

}  // namespace

qx_status to_c(const Status& status) {
  if (!status.ok()) last_error() = status.message();
  return static_cast<qx_status>(status.code());
}

Status check_pointer(const char* name, const void* pointer) {
  return pointer != nullptr ? ok_status() : invalid_argument(std::string(name) + ": null pointer");
}

}  // namespace qx

const char* qx_last_error(void) { return qx::last_error().c_str(); }
