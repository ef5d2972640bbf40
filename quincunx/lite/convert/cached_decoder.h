// From a decoder over whole sequences to one that keeps keys and values: docs/lite.md, "Generate".
#pragma once

#include <cstdint>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::lite {

struct DecoderOptions {
  // Tokens that a cache has room for, prompt and answer together.
  int64_t max_length = 0;
};

// `graph` maps tokens int64[1, L], L a symbol, to logits [1, L, V], and mixes tokens in causal
// scaled_dot_product_attention without a mask only. The result has an input `position` more, states "key.N" and
// "value.N", and gives the logits of the last token. INVALID_ARGUMENT names the node that does not fit.
Result<graph::Graph> make_cached_decoder(graph::Graph graph, const DecoderOptions& options);

// make_cached_decoder() as the two methods of an artifact: "prefill" for any number of tokens, "decode" for one.
Result<std::vector<graph::Graph>> make_decoder_methods(graph::Graph graph, const DecoderOptions& options);

}  // namespace qx::lite
