// Which values of a graph share memory and which nodes write to it. Graphs from AOTAutograd write only in a few copy_
// nodes at their end, but nothing promises that.
#pragma once

#include <vector>

#include "quincunx/graph/graph.h"

namespace qx::compiler {

// Whether a node changes one of its operands ("add_", ".out") or draws random numbers, so that it must stay where it
// is.
bool hasEffect(const graph::Node& node);

// The value that a node changes; kNoValue if it changes none.
graph::ValueId writtenValue(const graph::Node& node);

// For each value the value whose memory it shares: itself, or what it is a view of.
std::vector<graph::ValueId> memoryOwners(const graph::Graph& graph);

}  // namespace qx::compiler
