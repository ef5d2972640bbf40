#include "quincunx/compiler/clustering/source_users.h"

#include <algorithm>

namespace qx::compiler {

std::vector<graph::ValueId> tensorArguments(const graph::Node& node) {
  std::vector<graph::ValueId> values;
  const auto add = [&](const graph::TensorRef& tensor) {
    if (tensor.id != graph::kNoValue) values.push_back(tensor.id);
  };
  for (const graph::Argument& argument : node.arguments) {
    if (const auto* tensor = std::get_if<graph::TensorRef>(&argument)) add(*tensor);
    if (const auto* list = std::get_if<std::vector<graph::TensorRef>>(&argument)) std::ranges::for_each(*list, add);
  }
  return values;
}

SourceUsers::SourceUsers(const graph::Graph& graph)
    : graph_(graph), users_(graph.values.size()), leaves_(graph.values.size()) {
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    for (const graph::ValueId value : tensorArguments(graph.nodes[node])) {
      users_[value].push_back(static_cast<int32_t>(node));
    }
  }
  for (const graph::ValueId value : graph.outputs) {
    if (value != graph::kNoValue) leaves_[value] = true;
  }
  for (const graph::State& state : graph.states) {
    if (state.output != graph::kNoValue) leaves_[state.output] = true;
  }
}

bool SourceUsers::isUsedOutside(graph::ValueId value, const std::set<int32_t>& nodes) const {
  return leaves_[value] || std::ranges::any_of(users_[value], [&](int32_t user) { return !nodes.contains(user); });
}

std::vector<graph::ValueId> SourceUsers::usedOutside(const std::set<int32_t>& nodes) const {
  std::vector<graph::ValueId> values;
  for (const int32_t node : nodes) {
    for (const graph::ValueId value : graph_.nodes[node].results) {
      if (value != graph::kNoValue && isUsedOutside(value, nodes)) values.push_back(value);
    }
  }
  return values;
}

void SourceUsers::absorb(std::set<int32_t>& nodes, const std::vector<bool>& folded) const {
  if (nodes.empty()) return;
  // Users come after what they use, so one walk backwards finds chains too.
  for (int32_t node = *nodes.rbegin(); node > *nodes.begin(); --node) {
    if (!folded[node] || nodes.contains(node)) continue;
    const auto& results = graph_.nodes[node].results;
    const bool unused = std::ranges::none_of(
        results, [&](graph::ValueId value) { return value != graph::kNoValue && isUsedOutside(value, nodes); });
    if (unused) nodes.insert(node);
  }
}

}  // namespace qx::compiler
