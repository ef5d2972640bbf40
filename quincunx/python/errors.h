// Status at the Python edge: the exception of its code, as quincunx/base/status.h lists them.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "quincunx/base/status.h"

namespace qx::python {

// Thrown inside this folder only; nanobind turns it into Python's exception.
class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const char* what() const noexcept override { return status_.message().c_str(); }
  const Status& status() const { return status_; }

 private:
  Status status_;
};

inline void check(Status status) {
  if (!status.ok()) throw StatusError(std::move(status));
}

template <typename T>
T unwrap(Result<T> result) {
  if (!result.ok()) throw StatusError(result.status());
  return std::move(result).value();
}

// Tells nanobind about StatusError, once a module.
void register_errors();

}  // namespace qx::python
