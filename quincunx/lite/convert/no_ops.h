// Removing calls that give back what they are given.
#pragma once

#include "quincunx/graph/graph.h"

namespace qx::lite {

// Lets readers of such a call read its argument: copies, casts to the dtype that is there, views of the same shape,
// slices of everything, dropout outside of training, + 0 and * 1 of the same dtype. Run remove_dead_code afterwards.
// Returns how many calls it bypassed.
int bypass_no_ops(graph::Graph& graph);

}  // namespace qx::lite
