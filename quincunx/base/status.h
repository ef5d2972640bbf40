// Errors as values. Everything below the Python edge reports failure through Status or Result<T>; nothing throws,
// because MLIR is built without exceptions and none may unwind through it.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "quincunx/base/check.h"

namespace qx {

// Each code maps to one Python exception at the edge: see the right-hand column.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument,     // ValueError
  kTypeError,           // TypeError: wrong dtype, device or kind of object
  kUnimplemented,       // NotImplementedError: a valid request that this build or machine cannot serve
  kDeadlineExceeded,    // TimeoutError
  kFailedPrecondition,  // RuntimeError: the call is right, the state is not
  kNotFound,            // RuntimeError: a file, a peer, a name
  kUnavailable,         // RuntimeError: a peer or a resource is gone
  kAborted,             // RuntimeError: abort() was called
  kResourceExhausted,   // RuntimeError: memory, disk, descriptors
  kDataLoss,            // RuntimeError: corrupted or truncated input
  kInternal,            // RuntimeError: a broken invariant that was caught in time
};

std::string_view status_code_name(StatusCode code);

// A code and a sentence that names the argument, its value and what was expected. Cheap when ok.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "INVALID_ARGUMENT: rows must be positive, got -1"
  std::string to_string() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status ok_status() { return {}; }
Status invalid_argument(std::string message);
Status type_error(std::string message);
Status unimplemented(std::string message);
Status deadline_exceeded(std::string message);
Status failed_precondition(std::string message);
Status not_found(std::string message);
Status unavailable(std::string message);
Status aborted(std::string message);
Status resource_exhausted(std::string message);
Status data_loss(std::string message);
Status internal_error(std::string message);

std::ostream& operator<<(std::ostream& out, const Status& status);

// A value or the Status that says why there is none. value() on an error is a broken invariant and aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { QX_CHECK(!status_.ok()); }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    QX_CHECK_MESSAGE(ok(), status_.message());
    return *value_;
  }
  const T& value() const& {
    QX_CHECK_MESSAGE(ok(), status_.message());
    return *value_;
  }
  T&& value() && {
    QX_CHECK_MESSAGE(ok(), status_.message());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace qx

#define QX_CONCAT_INNER(a, b) a##b
#define QX_CONCAT(a, b) QX_CONCAT_INNER(a, b)

#define QX_RETURN_IF_ERROR(expression)       \
  do {                                       \
    ::qx::Status qx_status_ = (expression);  \
    if (!qx_status_.ok()) return qx_status_; \
  } while (false)

// QX_ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
#define QX_ASSIGN_OR_RETURN(declaration, expression) \
  QX_ASSIGN_OR_RETURN_INNER(QX_CONCAT(qx_result_, __LINE__), declaration, expression)
#define QX_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                      \
  if (!result.ok()) return result.status();                        \
  declaration = std::move(result).value()
