// Status as the exceptions that PyTorch expects of a backend.
#pragma once

#include <c10/util/Exception.h>

#include <exception>

#include "quincunx/base/status.h"

namespace qx::distributed {

// Python sees quincunx.mccl.CollectiveTimeoutError, which is a TimeoutError and a torch.distributed.DistBackendError.
class CollectiveTimeout : public c10::DistBackendError {
  using c10::DistBackendError::DistBackendError;
};

// kInvalidArgument: ValueError; kTypeError: TypeError; kUnimplemented: NotImplementedError; kDeadlineExceeded:
// CollectiveTimeout; all else: DistBackendError, a RuntimeError.
[[noreturn]] void throw_status(const Status& status);
std::exception_ptr exception_from(const Status& status);

inline void throw_if_error(const Status& status) {
  if (!status.ok()) throw_status(status);
}

}  // namespace qx::distributed
