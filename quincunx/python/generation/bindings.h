// The parts of quincunx._generation, one function a file.
#pragma once

#include <nanobind/nanobind.h>

namespace qx::python {

void bind_tokenizer(nanobind::module_& module);
void bind_generate(nanobind::module_& module);

}  // namespace qx::python
