// The parts of quincunx._core, one function a file. Modules of other folders share these types: they are built with
// NB_DOMAIN quincunx and import quincunx._core first.
#pragma once

#include <nanobind/nanobind.h>

namespace qx::python {

void bind_graph(nanobind::module_& module);
void bind_fx_import(nanobind::module_& module);
void bind_qxm(nanobind::module_& module);
void bind_session(nanobind::module_& module);

}  // namespace qx::python
