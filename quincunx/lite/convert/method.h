// What a converted model calls its methods, inputs, outputs and sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::lite {

// bypass_no_ops() and remove_dead_code().
void simplify(graph::Graph& graph);

// What every method goes through at the end: simplify(), the operators' check, and nodes whose arguments are all
// constant are computed, if their results are small.
Status finish_method(graph::Graph& graph);

// A graph as it is, finished: the method "forward", or another name.
Result<graph::Graph> make_method(graph::Graph graph, const std::string& name);

// From tokens and mask, int64[batch, length], to one row a text: the method "encode" for 1 to `max_batch` texts of 1 to
// `max_length` tokens.
Result<graph::Graph> make_encoder(graph::Graph graph, int64_t max_batch, int64_t max_length);

}  // namespace qx::lite
