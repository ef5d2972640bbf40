// Whether the runtime can run a graph, before it is written.
#pragma once

#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::lite {

// UNIMPLEMENTED lists the nodes that the runtime has no operator for, or not with such arguments.
Status check_operators(const graph::Graph& graph);

}  // namespace qx::lite
