// The edge of the C interfaces: a Status becomes a code and a text that the thread keeps, and nothing is thrown past
// it.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "quincunx/base/quincunx_status.h"
#include "quincunx/base/status.h"

namespace qx {

// The code; where it is an error, qx_last_error() of this thread is its message from now on.
qx_status to_c(const Status& status);

Status check_pointer(const char* name, const void* pointer);
template <typename T>
Status check_pointer(const char* name, const T* pointer) {
  return check_pointer(name, static_cast<const void*>(pointer));
}

// What the body returns, or what it throws, as a code.
template <typename Body>
qx_status at_c_edge(const Body& body) {
  try {
    return to_c(body());
  } catch (const std::bad_alloc&) {
    return to_c(resource_exhausted("out of memory"));
  } catch (const std::exception& error) {
    return to_c(internal_error(error.what()));
  }
}

}  // namespace qx
