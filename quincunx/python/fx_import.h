// torch.fx graphs, as Inductor's passes, AOTAutograd and torch.export make them, become graph::Graph.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "quincunx/graph/graph.h"

namespace qx::python {

struct FxOptions {
  std::string name = "main";
  // Where get_attr nodes look: the GraphModule, or None.
  nanobind::object owner;
  // Placeholder's name -> the tensor it stands for, which becomes a constant and is no input.
  nanobind::dict lifted;
  // For each leaf of the output: None, or (state's name, name of the placeholder that the next call reads it from).
  nanobind::list states;
  // What no graph can hold becomes "fx.opaque", a call of an unknown function of tensors, instead of an error.
  bool opaque = false;
};

struct ImportedGraph {
  std::shared_ptr<graph::Graph> graph;
  // For each node of the graph its fx.Node.
  std::vector<nanobind::object> node_sources;
  // For each value the fx.Node that gives it (the getitem for one of several results), None if there is none.
  std::vector<nanobind::object> value_sources;
  // For each input of the graph its number among the placeholders, for each output its number among the leaves of the
  // FX graph's output. What is no tensor has no place in the graph's lists.
  std::vector<int64_t> input_positions;
  std::vector<int64_t> output_positions;
  // For each symbol its sympy expression.
  std::vector<nanobind::object> symbol_expressions;
};

// Throws StatusError that names the node. The caller holds the GIL.
ImportedGraph import_fx(nanobind::handle fx_graph, const FxOptions& options);

}  // namespace qx::python
