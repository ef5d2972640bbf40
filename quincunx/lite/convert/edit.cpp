#include "quincunx/lite/convert/edit.h"

#include <algorithm>
#include <utility>

namespace qx::lite {
namespace {

using graph::Argument;
using graph::Dim;
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::TensorRef;
using graph::ValueId;

template <typename Visit>
void for_each_reference(Node& node, Visit visit) {
  for (Argument& argument : node.arguments) {
    if (auto* one = std::get_if<TensorRef>(&argument)) visit(one->id);
    if (auto* list = std::get_if<std::vector<TensorRef>>(&argument)) {
      for (TensorRef& element : *list) visit(element.id);
    }
  }
}

// Nodes from the last to the first keep what they read alive if something reads them.
std::vector<bool> mark_read(const Graph& graph, std::vector<bool>& node_lives) {
  std::vector<bool> read(graph.values.size(), false);
  const auto mark = [&](ValueId id) { read[static_cast<size_t>(id)] = true; };
  for (const ValueId id : graph.outputs) mark(id);
  for (const graph::State& state : graph.states) mark(state.output);
  for (size_t index = graph.nodes.size(); index-- > 0;) {
    const Node& node = graph.nodes[index];
    node_lives[index] = std::any_of(node.results.begin(), node.results.end(),
                                    [&](ValueId id) { return id != kNoValue && read[static_cast<size_t>(id)]; });
    if (node_lives[index]) for_each_operand(node, mark);
  }
  return read;
}

void renumber_values(Graph& graph, const std::vector<bool>& kept) {
  std::vector<ValueId> numbers(graph.values.size(), kNoValue);
  std::vector<graph::Value> values;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (!kept[id]) continue;
    numbers[id] = static_cast<ValueId>(values.size());
    values.push_back(std::move(graph.values[id]));
  }
  graph.values = std::move(values);
  const auto rename = [&](ValueId& id) {
    if (id != kNoValue) id = numbers[static_cast<size_t>(id)];
  };
  for (Node& node : graph.nodes) {
    for_each_reference(node, rename);
    for (ValueId& id : node.results) rename(id);
  }
  for (ValueId& id : graph.inputs) rename(id);
  for (ValueId& id : graph.outputs) rename(id);
  for (graph::State& state : graph.states) {
    rename(state.input);
    rename(state.output);
  }
}

void renumber_constants(Graph& graph) {
  std::vector<int32_t> numbers(graph.constants.size(), -1);
  std::vector<graph::Constant> constants;
  for (graph::Value& value : graph.values) {
    if (value.constant < 0) continue;
    int32_t& number = numbers[static_cast<size_t>(value.constant)];
    if (number < 0) {
      number = static_cast<int32_t>(constants.size());
      constants.push_back(graph.constants[static_cast<size_t>(value.constant)]);
    }
    value.constant = number;
  }
  graph.constants = std::move(constants);
}

}  // namespace

void for_each_operand(const Node& node, const std::function<void(ValueId)>& visit) {
  for (const Argument& argument : node.arguments) {
    if (const auto* one = std::get_if<TensorRef>(&argument); one != nullptr && one->id != kNoValue) visit(one->id);
    const auto* list = std::get_if<std::vector<TensorRef>>(&argument);
    if (list == nullptr) continue;
    for (const TensorRef& element : *list) {
      if (element.id != kNoValue) visit(element.id);
    }
  }
}

void for_each_dim(Graph& graph, const std::function<void(Dim&)>& visit) {
  for (graph::Value& value : graph.values) {
    for (Dim& dim : value.type.shape) visit(dim);
  }
  for (Node& node : graph.nodes) {
    for (Argument& argument : node.arguments) {
      if (auto* one = std::get_if<Dim>(&argument)) visit(*one);
      if (auto* list = std::get_if<std::vector<Dim>>(&argument)) {
        for (Dim& dim : *list) visit(dim);
      }
    }
  }
}

std::vector<ValueId> no_replacements(const Graph& graph) {
  std::vector<ValueId> same(graph.values.size());
  for (size_t id = 0; id < same.size(); ++id) same[id] = static_cast<ValueId>(id);
  return same;
}

void replace_values(Graph& graph, std::vector<ValueId> replacements) {
  const auto last = [&](ValueId id) {
    while (replacements[static_cast<size_t>(id)] != id) id = replacements[static_cast<size_t>(id)];
    return id;
  };
  const auto replace = [&](ValueId& id) {
    if (id != kNoValue) id = last(id);
  };
  for (Node& node : graph.nodes) for_each_reference(node, replace);
  for (ValueId& id : graph.outputs) replace(id);
  for (graph::State& state : graph.states) replace(state.output);
}

ValueId add_value(Graph& graph, std::string name, graph::TensorType type) {
  graph.values.push_back({std::move(name), std::move(type)});
  return static_cast<ValueId>(graph.values.size()) - 1;
}

void remove_dead_code(Graph& graph) {
  std::vector<bool> node_lives(graph.nodes.size(), false);
  std::vector<bool> kept = mark_read(graph, node_lives);
  std::vector<Node> nodes;
  for (size_t index = 0; index < graph.nodes.size(); ++index) {
    if (!node_lives[index]) continue;
    for (const ValueId id : graph.nodes[index].results) {
      if (id != kNoValue) kept[static_cast<size_t>(id)] = true;
    }
    nodes.push_back(std::move(graph.nodes[index]));
  }
  graph.nodes = std::move(nodes);
  for (const ValueId id : graph.inputs) kept[static_cast<size_t>(id)] = true;
  for (const graph::State& state : graph.states) kept[static_cast<size_t>(state.input)] = true;
  renumber_values(graph, kept);
  renumber_constants(graph);
}

Result<Graph> bind_symbol(Graph graph, int32_t symbol, int64_t size) {
  if (symbol < 0 || static_cast<size_t>(symbol) >= graph.symbols.size()) {
    return invalid_argument("bind_symbol: symbol is " + std::to_string(symbol) + ", expected 0 to " +
                            std::to_string(graph.symbols.size()) + " - 1");
  }
  const graph::Symbol& bound = graph.symbols[static_cast<size_t>(symbol)];
  if (size < bound.min || size > bound.max) {
    return invalid_argument("bind_symbol: size of " + bound.name + " is " + std::to_string(size) + ", expected " +
                            std::to_string(bound.min) + " to " + std::to_string(bound.max));
  }
  graph.symbols.erase(graph.symbols.begin() + symbol);
  for_each_dim(graph, [&](Dim& dim) {
    if (dim.symbol == symbol) {
      dim = Dim{dim.multiplier * size + dim.value};
    } else if (dim.symbol > symbol) {
      --dim.symbol;
    }
  });
  return graph;
}

}  // namespace qx::lite
