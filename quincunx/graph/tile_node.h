// "qx.tile": a node whose first argument is a tile program as text and whose second are the program's inputs.
#pragma once

#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::graph {

inline constexpr char kTileOperator[] = "qx.tile";

// The program of a node whose arguments fit the operator's schema can be read, and its inputs and outputs have the
// dtypes and ranks of the node's. The ids of the node must be in range. The error starts with the argument.
Status check_tile_node(const Graph& graph, const Node& node);

}  // namespace qx::graph
