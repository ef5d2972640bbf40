#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "quincunx/python/bindings.h"
#include "quincunx/python/fx_import.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace qx::python {

void bind_fx_import(nb::module_& module) {
  nb::class_<ImportedGraph>(module, "ImportedGraph", "A graph, and where each part of it comes from.")
      .def_ro("graph", &ImportedGraph::graph)
      .def_ro("node_sources", &ImportedGraph::node_sources, "The fx.Node of each node.")
      .def_ro("value_sources", &ImportedGraph::value_sources, "The fx.Node that gives each value, or None.")
      .def_ro("input_positions", &ImportedGraph::input_positions, "For each input its number among the placeholders.")
      .def_ro("output_positions", &ImportedGraph::output_positions,
              "For each output its number among the leaves of the FX graph's output.")
      .def_ro("symbol_expressions", &ImportedGraph::symbol_expressions, "The sympy expression of each symbol.");
  module.def(
      "import_fx",
      [](nb::handle fx_graph, std::string name, nb::object owner, nb::dict lifted, nb::list states, bool opaque) {
        const FxOptions options{.name = std::move(name),
                                .owner = std::move(owner),
                                .lifted = std::move(lifted),
                                .states = std::move(states),
                                .opaque = opaque};
        return import_fx(fx_graph, options);
      },
      "fx_graph"_a, nb::kw_only(), "name"_a = "main", "owner"_a = nb::none(), "lifted"_a = nb::dict(),
      "states"_a = nb::list(), "opaque"_a = false);
}

}  // namespace qx::python
