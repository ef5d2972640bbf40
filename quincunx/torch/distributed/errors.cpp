#include "quincunx/torch/distributed/errors.h"

namespace qx::distributed {

void throw_status(const Status& status) {
  const c10::SourceLocation location{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  const bool expired = status.code() == StatusCode::kDeadlineExceeded;
  // Callers of other backends look for this word.
  const std::string message = (expired ? "mccl: the timeout has passed: " : "mccl: ") + status.message();
  switch (status.code()) {
    case StatusCode::kInvalidArgument: throw c10::ValueError(location, message);
    case StatusCode::kTypeError: throw c10::TypeError(location, message);
    case StatusCode::kUnimplemented: throw c10::NotImplementedError(location, message);
    case StatusCode::kDeadlineExceeded: throw CollectiveTimeout(location, message);
    default: throw c10::DistBackendError(location, message);
  }
}

std::exception_ptr exception_from(const Status& status) {
  try {
    throw_status(status);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace qx::distributed
