#include <nanobind/nanobind.h>

#include "quincunx/python/errors.h"
#include "quincunx/python/generation/bindings.h"

// Session and its types are those of quincunx._core, which Python imports first.
NB_MODULE(_generation, module) {
  module.doc() = "Tokenizers and generation: see docs/lite.md.";
  qx::python::register_errors();
  qx::python::bind_tokenizer(module);
  qx::python::bind_generate(module);
}
