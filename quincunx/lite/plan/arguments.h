// The tensors among a node's arguments.
#pragma once

#include <variant>
#include <vector>

#include "quincunx/graph/graph.h"

namespace qx::lite {

// Calls visit(id) for every tensor among the arguments, absent ones left out.
template <typename Visit>
void for_each_tensor(const graph::Node& node, const Visit& visit) {
  for (const graph::Argument& argument : node.arguments) {
    if (const auto* ref = std::get_if<graph::TensorRef>(&argument)) visit(ref->id);
    if (const auto* list = std::get_if<std::vector<graph::TensorRef>>(&argument)) {
      for (const graph::TensorRef ref : *list) {
        if (ref.id != graph::kNoValue) visit(ref.id);
      }
    }
  }
}

}  // namespace qx::lite
