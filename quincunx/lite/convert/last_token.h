// The logits of the last token are all that generation reads.
#pragma once

#include <cstdint>

#include "quincunx/graph/graph.h"

namespace qx::lite {

// Lets output 0, which has one row for each of the `symbol` tokens, hold the last row alone. The others are dropped as
// early as the graph allows: before the product with the vocabulary and the norms that only it reads.
void keep_last_token(graph::Graph& graph, int32_t symbol);

}  // namespace qx::lite
