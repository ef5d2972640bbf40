// Whether a graph treats each token by itself, as a key-value cache assumes of everything but attention.
#pragma once

#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::lite {

// The dim of `type` whose size is `symbol`, or -1.
int token_dim(const graph::TensorType& type, int32_t symbol);

// That `node`, of which some operand has one row for each of the `symbol` tokens, computes each row of its results
// from the same row of its operands. INVALID_ARGUMENT names the node and what it does to the tokens.
Status check_token_wise(const graph::Graph& graph, const graph::Node& node, int32_t symbol);

}  // namespace qx::lite
