#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <vector>

#include "quincunx/graph/qxm.h"
#include "quincunx/python/bindings.h"
#include "quincunx/python/errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace qx::python {
namespace {

using graph::Graph;
using graph::Qxm;

void write(const std::string& path, const std::vector<std::shared_ptr<Graph>>& methods, const std::string& metadata,
           const nb::bytes& tokenizer) {
  Qxm contents{.methods = {}, .metadata = metadata, .tokenizer = std::string(tokenizer.c_str(), tokenizer.size())};
  for (const auto& method : methods) {
    if (method == nullptr) throw nb::type_error("methods: expected graphs, got None");
    contents.methods.push_back(*method);
  }
  const nb::gil_scoped_release release;
  check(graph::write_qxm(path, contents));
}

Qxm open(const std::string& path, bool check_weights) {
  const nb::gil_scoped_release release;
  return unwrap(graph::open_qxm(path, {.check_weights = check_weights}));
}

}  // namespace

void bind_qxm(nb::module_& module) {
  nb::class_<Qxm>(module, "Qxm", "The contents of a .qxm file.")
      .def_prop_ro(
          "methods", [](const Qxm& contents) { return contents.methods; }, "A list of Graph.")
      .def_ro("metadata", &Qxm::metadata, "The text of a JSON object.")
      .def_prop_ro("tokenizer",
                   [](const Qxm& contents) { return nb::bytes(contents.tokenizer.data(), contents.tokenizer.size()); });
  module.def("write_qxm", &write, "path"_a, "methods"_a, nb::kw_only(), "metadata"_a = "{}",
             "tokenizer"_a = nb::bytes("", 0), "Writes a .qxm file, or leaves the old one of that name as it is.");
  module.def("open_qxm", &open, "path"_a, nb::kw_only(), "check_weights"_a = true,
             "Maps a .qxm file. RuntimeError for a damaged one.");
}

}  // namespace qx::python
