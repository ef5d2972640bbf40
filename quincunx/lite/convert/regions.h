// Fused regions of a converted method. A library of its own (quincunx_regions): it alone holds the compiler.
#pragma once

#include <string>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::lite {

struct TileRegion {
  // Of the "qx.tile" node that stands for it: "fused_3_mul_sub".
  std::string name;
  // "elementwise", "broadcast", "reduce" or "reshape".
  std::string kind;
  // Names of the nodes that it replaced.
  std::vector<std::string> nodes;
};

// Lets products take what follows them into their epilogues ("qx.linear"), then runs the fusion compiler on what is
// left and puts a "qx.tile" node in the place of each of its regions. The graph keeps its inputs, outputs and states.
// INVALID_ARGUMENT for a graph that verify() refuses.
Result<std::vector<TileRegion>> make_tile_regions(graph::Graph& graph);

}  // namespace qx::lite
