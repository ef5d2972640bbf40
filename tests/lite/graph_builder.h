// Short ways to write a graph and to run it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/graph/graph.h"
#include "quincunx/lite/session.h"

namespace qx::lite {

inline graph::Dim known(int64_t value) { return {.value = value}; }
inline graph::Dim symbol(int32_t index, int64_t multiplier = 1, int64_t offset = 0) {
  return {.value = offset, .multiplier = multiplier, .symbol = index};
}

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name = "forward") { graph_.name = std::move(name); }

  int32_t symbol(const std::string& name, int64_t min, int64_t max) {
    graph_.symbols.push_back({name, min, max});
    return static_cast<int32_t>(graph_.symbols.size()) - 1;
  }
  graph::ValueId value(DType dtype, const std::vector<graph::Dim>& shape, std::string name = "") {
    if (name.empty()) name = "v" + std::to_string(graph_.values.size());
    graph_.values.push_back({std::move(name), {dtype, shape}, -1});
    return static_cast<graph::ValueId>(graph_.values.size()) - 1;
  }
  graph::ValueId input(const std::string& name, DType dtype, const std::vector<graph::Dim>& shape) {
    graph_.inputs.push_back(value(dtype, shape, name));
    return graph_.inputs.back();
  }
  template <typename T>
  graph::ValueId constant(DType dtype, const std::vector<int64_t>& shape, const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    auto storage = Storage::allocate(bytes).value();
    std::memcpy(storage->mutable_data(), values.data(), static_cast<size_t>(bytes));
    std::vector<graph::Dim> dims;
    for (const int64_t size : shape) dims.push_back(known(size));
    const graph::ValueId id = value(dtype, dims);
    graph_.values.back().constant = static_cast<int32_t>(graph_.constants.size());
    graph_.constants.push_back({std::move(storage), 0});
    return id;
  }
  // A node with one result.
  graph::ValueId call(const std::string& op, std::vector<graph::Argument> arguments, DType dtype,
                      const std::vector<graph::Dim>& shape) {
    const graph::ValueId id = value(dtype, shape);
    graph_.nodes.push_back({op, "n" + std::to_string(graph_.nodes.size()), std::move(arguments), {id}});
    return id;
  }
  void state(const std::string& name, graph::ValueId input, graph::ValueId output) {
    graph_.states.push_back({name, input, output});
  }
  void output(graph::ValueId id) { graph_.outputs.push_back(id); }
  graph::Graph& graph() { return graph_; }

 private:
  graph::Graph graph_;
};

inline graph::TensorRef ref(graph::ValueId id) { return {id}; }

inline TensorView view_of(std::vector<float>& values, const std::vector<int64_t>& shape) {
  return TensorView::contiguous(values.data(), DType::kFloat32, shape).value();
}
inline TensorView view_of(std::vector<int64_t>& values, const std::vector<int64_t>& shape) {
  return TensorView::contiguous(values.data(), DType::kInt64, shape).value();
}

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  const T* data = tensor.view.data_as<T>();
  return {data, data + tensor.view.num_elements()};
}

// The outputs of a graph of one method.
inline Result<std::vector<Tensor>> run_graph(const graph::Graph& graph, const std::vector<TensorView>& inputs) {
  QX_ASSIGN_OR_RETURN(Session session, Session::create({graph}));
  return session.run(graph.name, inputs);
}

}  // namespace qx::lite
