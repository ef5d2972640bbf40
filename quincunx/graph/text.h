// The parts of a graph as people read them.
#pragma once

#include <span>
#include <string>

#include "quincunx/graph/graph.h"

namespace qx::graph {

// "64", "s0", "2*s0 + 1". A symbol out of range is shown by its number.
std::string dim_text(const Dim& dim, std::span<const Symbol> symbols);

// "float32[s0, 64]"
std::string type_text(const TensorType& type, std::span<const Symbol> symbols);

// "%3", "[%1, none]", "none", "true", "1e-05", "\"tanh\"", "float32", "[1, s0]"
std::string argument_text(const Argument& argument, std::span<const Symbol> symbols);

}  // namespace qx::graph
