#include <nanobind/nanobind.h>

#include "quincunx/python/bindings.h"
#include "quincunx/python/errors.h"

NB_MODULE(_core, module) {
  module.doc() = "The C++ core without torch: graphs and what reads, writes and runs them.";
  qx::python::register_errors();
  qx::python::bind_graph(module);
  qx::python::bind_fx_import(module);
  qx::python::bind_qxm(module);
  qx::python::bind_session(module);
}
