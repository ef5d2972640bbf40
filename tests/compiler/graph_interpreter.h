// A graph evaluated in f64 by the definitions of its operators, knowing nothing of the compiler: the right values.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/graph_builder.h"

namespace qx::compiler {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> data;  // row-major
};

inline int64_t countOf(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

class GraphInterpreter {
 public:
  GraphInterpreter(const graph::Graph& graph, std::vector<int64_t> symbols)
      : graph_(graph), symbols_(std::move(symbols)) {}

  std::map<graph::ValueId, Array> values;

  void run() {
    for (const graph::Node& node : graph_.nodes) {
      Array& result = values[node.results[0]];
      for (const graph::Dim& dim : graph_.values[node.results[0]].type.shape) result.shape.push_back(sizeOf(dim));
      result.data.resize(countOf(result.shape));
      for (int64_t i = 0; i < static_cast<int64_t>(result.data.size()); ++i) {
        result.data[i] = element(node, indexOf(result.shape, i), result.shape);
      }
    }
  }
  int64_t sizeOf(const graph::Dim& dim) const {
    return dim.is_known() ? dim.value : dim.multiplier * symbols_[dim.symbol] + dim.value;
  }

 private:
  using Index = std::vector<int64_t>;

  static Index indexOf(const std::vector<int64_t>& shape, int64_t flat) {
    Index index(shape.size());
    for (size_t dim = shape.size(); dim-- > 0;) {
      index[dim] = flat % shape[dim];
      flat /= shape[dim];
    }
    return index;
  }
  static double at(const Array& array, const Index& index) {
    int64_t flat = 0;
    for (size_t dim = 0; dim < array.shape.size(); ++dim) {
      const int64_t i = index[index.size() - array.shape.size() + dim];
      flat = flat * array.shape[dim] + (array.shape[dim] == 1 ? 0 : i);
    }
    return array.data[flat];
  }
  const Array& tensor(const graph::Node& node, size_t argument) const {
    return values.at(std::get<graph::TensorRef>(node.arguments[argument]).id);
  }
  static int64_t whole(const graph::Argument& argument) { return std::get<graph::Dim>(argument).value; }

  double element(const graph::Node& node, const Index& index, const std::vector<int64_t>& shape) const {
    static const std::map<std::string, std::function<double(double)>> kUnary = {
        {"aten.exp.default", [](double x) { return std::exp(x); }},
        {"aten.tanh.default", [](double x) { return std::tanh(x); }},
        {"aten.sigmoid.default", [](double x) { return 1 / (1 + std::exp(-x)); }},
        {"aten.erf.default", [](double x) { return std::erf(x); }},
        {"aten.relu.default", [](double x) { return x < 0 ? 0 : x; }},
        {"aten.neg.default", [](double x) { return -x; }},
        {"aten.abs.default", [](double x) { return std::fabs(x); }},
        {"aten.sin.default", [](double x) { return std::sin(x); }},
        {"aten.silu.default", [](double x) { return x / (1 + std::exp(-x)); }}};
    static const std::map<std::string, std::function<double(double, double)>> kBinary = {
        {"aten.add.Tensor", std::plus<double>()},
        {"aten.sub.Tensor", std::minus<double>()},
        {"aten.mul.Tensor", std::multiplies<double>()},
        {"aten.maximum.default", [](double a, double b) { return std::max(a, b); }},
        {"aten.minimum.default", [](double a, double b) { return std::min(a, b); }}};
    if (const auto f = kUnary.find(node.op); f != kUnary.end()) return f->second(at(tensor(node, 0), index));
    if (const auto f = kBinary.find(node.op); f != kBinary.end()) {
      return f->second(at(tensor(node, 0), index), at(tensor(node, 1), index));
    }
    if (node.op == "aten.permute.default") {
      const auto& dims = std::get<std::vector<graph::Dim>>(node.arguments[1]);
      Index source(index.size());
      for (size_t i = 0; i < dims.size(); ++i) source[dims[i].value] = index[i];
      return at(tensor(node, 0), source);
    }
    if (node.op == "aten.view.default") {
      int64_t flat = 0;
      for (size_t dim = 0; dim < shape.size(); ++dim) flat = flat * shape[dim] + index[dim];
      return tensor(node, 0).data[flat];
    }
    if (node.op == "aten.slice.Tensor") {
      Index source = index;
      source[whole(node.arguments[1])] += whole(node.arguments[2]);
      return at(tensor(node, 0), source);
    }
    if (node.op == "aten.cat.default") return concatenated(node, index);
    if (node.op == "aten._softmax.default") return softmax(tensor(node, 0), whole(node.arguments[1]), index);
    return reduced(node, index);
  }

  double concatenated(const graph::Node& node, Index index) const {
    const int64_t dim = whole(node.arguments[1]);
    for (const graph::TensorRef& piece : std::get<std::vector<graph::TensorRef>>(node.arguments[0])) {
      const Array& array = values.at(piece.id);
      if (index[dim] < array.shape[dim]) return at(array, index);
      index[dim] -= array.shape[dim];
    }
    return NAN;
  }

  static double softmax(const Array& x, int64_t dim, Index index) {
    const double own = at(x, index);
    double largest = -INFINITY;
    double sum = 0;
    for (index[dim] = 0; index[dim] < x.shape[dim]; ++index[dim]) largest = std::max(largest, at(x, index));
    for (index[dim] = 0; index[dim] < x.shape[dim]; ++index[dim]) sum += std::exp(at(x, index) - largest);
    return std::exp(own - largest) / sum;
  }

  double reduced(const graph::Node& node, Index index) const {
    const Array& x = tensor(node, 0);
    const int64_t dim = std::get<std::vector<graph::Dim>>(node.arguments[1])[0].value;
    double sum = 0;
    double largest = -INFINITY;
    for (index[dim] = 0; index[dim] < x.shape[dim]; ++index[dim]) {
      sum += at(x, index);
      largest = std::max(largest, at(x, index));
    }
    if (node.op == "aten.amax.default") return largest;
    return node.op == "aten.mean.dim" ? sum / static_cast<double>(x.shape[dim]) : sum;
  }

  const graph::Graph& graph_;
  std::vector<int64_t> symbols_;
};

}  // namespace qx::compiler
