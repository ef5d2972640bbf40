// Who uses a value in the source graph.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "quincunx/graph/graph.h"

namespace qx::compiler {

// Tensors among a node's arguments, missing ones left out.
std::vector<graph::ValueId> tensorArguments(const graph::Node& node);

class SourceUsers {
 public:
  explicit SourceUsers(const graph::Graph& graph);

  // Results of `nodes` that other nodes or the graph's outputs and states use.
  std::vector<graph::ValueId> usedOutside(const std::set<int32_t>& nodes) const;
  // Adds to `nodes` what only they use and what computes nothing of its own: folded nodes of which `folded` is true.
  void absorb(std::set<int32_t>& nodes, const std::vector<bool>& folded) const;

 private:
  bool isUsedOutside(graph::ValueId value, const std::set<int32_t>& nodes) const;

  const graph::Graph& graph_;
  std::vector<std::vector<int32_t>> users_;
  std::vector<bool> leaves_;
};

}  // namespace qx::compiler
