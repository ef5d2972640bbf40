#include "quincunx/python/errors.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace qx::python {
namespace {

PyObject* exception_of(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument: return PyExc_ValueError;
    case StatusCode::kTypeError: return PyExc_TypeError;
    case StatusCode::kUnimplemented: return PyExc_NotImplementedError;
    case StatusCode::kDeadlineExceeded: return PyExc_TimeoutError;
    default: return PyExc_RuntimeError;
  }
}

}  // namespace

void register_errors() {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const StatusError& error) {
      PyErr_SetString(exception_of(error.status().code()), error.status().message().c_str());
    }
  });
}

}  // namespace qx::python
