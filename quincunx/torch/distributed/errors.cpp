#include "quincunx/torch/distributed/errors.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include "quincunx/collectives/interruption.h"

namespace qx::distributed {
namespace {

// Elsewhere Python runs no handlers: other threads do not ask for the GIL.
bool may_handle_signals() { return gettid() == getpid() && Py_IsInitialized() != 0; }

// What a handler has raised stays with the thread until throw_if_interrupted.
bool signal_has_raised() {
  if (!may_handle_signals()) return false;
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raised = PyErr_Occurred() == nullptr && PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return raised;
}

}  // namespace

void let_signals_interrupt_waits() { collectives::set_interrupt_check(&signal_has_raised); }

void throw_if_interrupted(const Status& status) {
  if (status.code() != StatusCode::kAborted || !may_handle_signals()) return;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_Occurred() != nullptr) throw pybind11::error_already_set();
}

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
