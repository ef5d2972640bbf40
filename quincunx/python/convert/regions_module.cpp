#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <vector>

#include "quincunx/lite/convert/regions.h"
#include "quincunx/python/errors.h"

namespace nb = nanobind;
using namespace nb::literals;

using qx::graph::Graph;
using qx::lite::TileRegion;

// The graph types are those of quincunx._core, which Python imports first.
NB_MODULE(_regions, module) {
  using namespace qx::python;
  module.doc() = "Fused regions of converted methods: see docs/lite.md.";
  register_errors();
  nb::class_<TileRegion>(module, "TileRegion")
      .def_ro("name", &TileRegion::name)
      .def_ro("kind", &TileRegion::kind)
      .def_ro("nodes", &TileRegion::nodes);
  module.def(
      "make_tile_regions",
      [](const Graph& graph) {
        auto fused = std::make_shared<Graph>(graph);
        std::vector<TileRegion> regions = unwrap(qx::lite::make_tile_regions(*fused));
        return std::pair(std::move(fused), std::move(regions));
      },
      "graph"_a, "The graph with its regions as qx.tile nodes, and what they replaced.");
}
