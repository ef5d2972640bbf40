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

// Lets Ctrl-C end waits for groups, on the main thread: Python's handlers of signals run there, as between two lines of
// Python. Thread-safe.
void let_signals_interrupt_waits();
// Throws what such a handler has raised where it is why the wait that gave `status` has ended.
void throw_if_interrupted(const Status& status);

inline void throw_if_error(const Status& status) {
  if (!status.ok()) throw_status(status);
}
// The same for the status of a wait.
inline void throw_if_wait_failed(const Status& status) {
  throw_if_interrupted(status);
  throw_if_error(status);
}

}  // namespace qx::distributed
