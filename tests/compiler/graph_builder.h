// Graphs of PyTorch's operators for tests, with the shapes of their results computed by the caller.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "quincunx/graph/graph.h"

namespace qx::compiler {

inline graph::Dim size(int64_t value) { return {.value = value}; }
inline graph::Dim symbolic(int32_t index) { return {.value = 0, .multiplier = 1, .symbol = index}; }

class GraphBuilder {
 public:
  using Shape = std::vector<graph::Dim>;

  graph::ValueId input(DType dtype, Shape shape) {
    const graph::ValueId value = addValue("x" + std::to_string(graph.values.size()), dtype, std::move(shape));
    graph.inputs.push_back(value);
    return value;
  }
  graph::ValueId node(const std::string& op, std::vector<graph::Argument> arguments, DType dtype, Shape shape) {
    const std::string name = "n" + std::to_string(graph.nodes.size());
    const graph::ValueId value = addValue(name, dtype, std::move(shape));
    graph.nodes.push_back({op, name, std::move(arguments), {value}});
    return value;
  }
  // f32 and of the shape of its first tensor.
  graph::ValueId unary(const std::string& name, graph::ValueId x) {
    return node("aten." + name + ".default", {graph::TensorRef{x}}, type(x).dtype, type(x).shape);
  }
  // add, sub (alpha 1), mul, div of two tensors; the result has the shape of the one of higher rank.
  graph::ValueId binary(const std::string& name, graph::ValueId a, graph::ValueId b) {
    std::vector<graph::Argument> arguments = {graph::TensorRef{a}, graph::TensorRef{b}};
    if (name == "add" || name == "sub") arguments.emplace_back(size(1));
    Shape shape = type(a).shape;
    const Shape& other = type(b).shape;
    if (other.size() > shape.size()) shape = other;
    const Shape& smaller = type(a).shape.size() == shape.size() ? other : type(a).shape;
    for (size_t i = 0; i < smaller.size(); ++i) {
      graph::Dim& dim = shape[shape.size() - smaller.size() + i];
      if (dim == size(1)) dim = smaller[i];
    }
    return node("aten." + name + ".Tensor", std::move(arguments), type(a).dtype, shape);
  }
  // sum, mean or amax over one dim, which stays with size 1.
  graph::ValueId reduce(const std::string& name, graph::ValueId x, int64_t dim) {
    std::vector<graph::Argument> arguments = {graph::TensorRef{x}, Shape{size(dim)}, true};
    if (name != "amax.default") arguments.emplace_back(std::monostate{});
    Shape shape = type(x).shape;
    shape[dim] = size(1);
    return node("aten." + name, std::move(arguments), type(x).dtype, shape);
  }
  const graph::TensorType& type(graph::ValueId value) const { return graph.values[value].type; }

  graph::Graph graph;

 private:
  graph::ValueId addValue(const std::string& name, DType dtype, Shape shape) {
    graph.values.push_back({name, {dtype, std::move(shape)}, -1});
    return static_cast<graph::ValueId>(graph.values.size()) - 1;
  }
};

}  // namespace qx::compiler
