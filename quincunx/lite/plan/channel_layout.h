// Where images should lie with adjacent channels between operators.
#pragma once

#include <vector>

#include "quincunx/graph/graph.h"

namespace qx::lite {

// For each value: true for an f32 result [batch, channels, spatial ...] that reaches a convolution through operators
// which keep that layout, and that comes from a convolution through such operators. No output or state of the graph.
std::vector<bool> values_with_adjacent_channels(const graph::Graph& graph);

}  // namespace qx::lite
