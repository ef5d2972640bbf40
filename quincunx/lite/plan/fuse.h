// Rewrites of a graph before it is planned.
#pragma once

#include "quincunx/graph/graph.h"

namespace qx::lite {

// Removes nodes that no output and no state depends on; returns how many.
int remove_unused_nodes(graph::Graph& graph);

// Matrix products take what follows them into their epilogue: linear, mm and addmm become "qx.linear", and where their
// only reader is an activation, or an addition of a tensor of the same shape, it becomes part of it:
// activation(x w + bias) + residual. Only f32. Returns the number of nodes that went.
int fuse_epilogues(graph::Graph& graph);

}  // namespace qx::lite
