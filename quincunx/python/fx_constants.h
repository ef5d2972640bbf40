// torch's tensors as constants of a graph, without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <utility>

#include "quincunx/graph/graph.h"

namespace qx::python {

// Tensors of the same memory become one constant.
class FxConstants {
 public:
  explicit FxConstants(graph::Graph& graph) : graph_(graph) {}

  // The index in Graph::constants. The constant keeps the tensor; a tensor that is not contiguous is copied. Throws for
  // a tensor without memory.
  int32_t add(nanobind::handle tensor);

 private:
  graph::Graph& graph_;
  std::map<std::pair<const void*, size_t>, int32_t> known_;
};

}  // namespace qx::python
