#include "quincunx/lite/convert/last_token.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/lite/convert/edit.h"
#include "quincunx/lite/convert/token_wise.h"
#include "quincunx/lite/ops/operator.h"

namespace qx::lite {
namespace {

using graph::Dim;
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::TensorRef;
using graph::TensorType;
using graph::ValueId;

const TensorType& type_of(const Graph& graph, ValueId id) { return graph.values[static_cast<size_t>(id)].type; }

// The node's only operand with tokens; kNoValue if there are several.
ValueId only_token_operand(const Graph& graph, const Node& node, int32_t symbol) {
  std::vector<ValueId> found;
  for_each_operand(node, [&](ValueId id) {
    if (token_dim(type_of(graph, id), symbol) >= 0) found.push_back(id);
  });
  return found.size() == 1 ? found[0] : kNoValue;
}

// None of its arguments is a shape, so that it works for one token as it is.
bool works_for_fewer_tokens(const Node& node) {
  if (node.op == "aten.linear.default" || node.op == "aten.rms_norm.default" || node.op == "aten.layer_norm.default") {
    return true;
  }
  const Operator* entry = find_operator(node.op);
  return entry != nullptr && entry->elementwise;
}

int num_readers(const Graph& graph, ValueId id) {
  auto count = static_cast<int>(std::count(graph.outputs.begin(), graph.outputs.end(), id));
  for (const graph::State& state : graph.states) count += state.output == id ? 1 : 0;
  for (const Node& node : graph.nodes) {
    for_each_operand(node, [&](ValueId operand) { count += operand == id ? 1 : 0; });
  }
  return count;
}

size_t producer(const Graph& graph, ValueId id) {
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return std::find(node.results.begin(), node.results.end(), id) != node.results.end();
  });
  return static_cast<size_t>(found - graph.nodes.begin());
}

}  // namespace

void keep_last_token(Graph& graph, int32_t symbol) {
  ValueId source = graph.outputs[0];
  size_t first = graph.nodes.size();  // the node that reads the slice
  std::vector<ValueId> shortened;
  while (num_readers(graph, source) == 1) {
    const size_t index = producer(graph, source);
    if (index == graph.nodes.size() || !works_for_fewer_tokens(graph.nodes[index])) break;
    const ValueId operand = only_token_operand(graph, graph.nodes[index], symbol);
    if (operand == kNoValue) break;
    shortened.push_back(source);
    source = operand;
    first = index;
  }
  TensorType type = type_of(graph, source);
  const int dim = token_dim(type, symbol);
  type.shape[static_cast<size_t>(dim)] = Dim{1};
  const ValueId last = add_value(graph, "last_token", type);
  for (const ValueId id : shortened) {
    TensorType& shorter = graph.values[static_cast<size_t>(id)].type;
    shorter.shape[static_cast<size_t>(token_dim(shorter, symbol))] = Dim{1};
  }
  if (first == graph.nodes.size()) {
    graph.outputs[0] = last;
  } else {
    for (graph::Argument& argument : graph.nodes[first].arguments) {
      if (argument == graph::Argument(TensorRef{source})) argument = TensorRef{last};
    }
  }
  const Node slice = {"aten.slice.Tensor",
                      "last_token",
                      {TensorRef{source}, Dim{dim}, Dim{-1, 1, symbol}, Dim{0, 1, symbol}, Dim{1}},
                      {last}};
  graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(first), slice);
}

}  // namespace qx::lite
