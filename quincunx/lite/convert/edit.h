// Small steps that graph rewrites are made of.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::lite {

// Calls `visit` with the id of each tensor that `node` reads; missing ones are left out.
void for_each_operand(const graph::Node& node, const std::function<void(graph::ValueId)>& visit);

// Calls `visit` with each size in `graph`: those of shapes and those among the arguments.
void for_each_dim(graph::Graph& graph, const std::function<void(graph::Dim&)>& visit);

// Lets every reader of a key read the value instead: nodes, outputs and outputs of states. `replacements[id]` is id
// where nothing changes; chains are followed.
void replace_values(graph::Graph& graph, std::vector<graph::ValueId> replacements);

// The replacements of replace_values that change nothing.
std::vector<graph::ValueId> no_replacements(const graph::Graph& graph);

graph::ValueId add_value(graph::Graph& graph, std::string name, graph::TensorType type);

// Removes nodes that nobody reads, then values and constants that no node, input, output or state mentions, and numbers
// the rest anew. Inputs stay.
void remove_dead_code(graph::Graph& graph);

// `graph` with `symbol` fixed to `size`.
Result<graph::Graph> bind_symbol(graph::Graph graph, int32_t symbol, int64_t size);

}  // namespace qx::lite
