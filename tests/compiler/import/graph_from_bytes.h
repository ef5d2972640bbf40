// Any bytes as a graph of PyTorch's operators: mostly wrong ones, which the importer has to refuse or to keep opaque.
#pragma once

#include <cstdint>
#include <span>

#include "compiler/graph_builder.h"
#include "quincunx/graph/schema.h"

namespace qx::compiler {

class GraphFromBytes {
 public:
  explicit GraphFromBytes(std::span<const uint8_t> bytes) : bytes_(bytes) {
    b_.graph.symbols.push_back({"s0", 0, 1 << 20});
    for (int count = pick(3) + 1; count > 0; --count) b_.input(dtype(), shape());
    for (int count = pick(12); count > 0; --count) addNode();
    for (int count = pick(3); count > 0; --count) b_.graph.outputs.push_back(value());
  }
  const graph::Graph& graph() const { return b_.graph; }

 private:
  int pick(int bound) {
    if (next_ >= bytes_.size() || bound <= 0) return 0;
    return bytes_[next_++] % bound;
  }
  DType dtype() {
    constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat32,  DType::kInt64, DType::kBool,
                                DType::kFloat16, DType::kBFloat16, DType::kUInt8, DType::kComplex64};
    return kTypes[pick(8)];
  }
  graph::Dim dim() {
    switch (pick(5)) {
      case 0: return symbolic(0);
      case 1: return {.value = pick(3) - 1, .multiplier = 1 + pick(2), .symbol = 0};
      default: return size(pick(10) - 2);
    }
  }
  GraphBuilder::Shape shape() {
    GraphBuilder::Shape sizes;
    for (int rank = pick(4); rank > 0; --rank) sizes.push_back(pick(8) == 0 ? dim() : size(pick(5)));
    return sizes;
  }
  graph::ValueId value() { return pick(static_cast<int>(b_.graph.values.size())); }

  graph::Argument argument(const graph::ArgumentSchema& schema) {
    using graph::ArgumentKind;
    if (schema.optional && pick(2) == 0) return {};
    switch (schema.kind) {
      case ArgumentKind::kTensor: return graph::TensorRef{value()};
      case ArgumentKind::kTensorList: {
        std::vector<graph::TensorRef> list;
        for (int count = pick(4); count > 0; --count) list.push_back({value()});
        return list;
      }
      case ArgumentKind::kScalar:
        if (pick(2) == 0) return 0.5 * (pick(9) - 4);
        return pick(3) == 0 ? graph::Argument(pick(2) == 0) : graph::Argument(dim());
      case ArgumentKind::kInt: return dim();
      case ArgumentKind::kIntList: return shape();
      case ArgumentKind::kFloat: return 0.25 * (pick(9) - 2);
      case ArgumentKind::kFloatList: return std::vector<double>(static_cast<size_t>(pick(3)), 1.5);
      case ArgumentKind::kBool: return pick(2) == 0;
      case ArgumentKind::kBoolList: return std::vector<bool>(static_cast<size_t>(pick(4)), true);
      case ArgumentKind::kDType: return dtype();
      case ArgumentKind::kGenerator: return {};
      default: return std::string(pick(2) == 0 ? "none" : "tanh");
    }
  }

  // A result of the first operand's type more often than not, so that some nodes are right.
  graph::ValueId result(graph::ValueId like) {
    bool same = pick(4) != 0;
    graph::Value made = same ? b_.graph.values[static_cast<size_t>(like)] : graph::Value{};
    if (!same) made.type = {dtype(), shape()};
    made.name = "r";
    b_.graph.values.push_back(std::move(made));
    return static_cast<graph::ValueId>(b_.graph.values.size()) - 1;
  }

  void addNode() {
    auto schemas = graph::schemas();
    const graph::OperatorSchema& schema = schemas[static_cast<size_t>(pick(256) * 256 + pick(256)) % schemas.size()];
    graph::Node node{std::string(schema.name), "n", {}, {}};
    for (const graph::ArgumentSchema& one : schema.arguments) node.arguments.push_back(argument(one));
    graph::ValueId like = value();
    for (graph::ArgumentKind kind : schema.results) {
      int count = kind == graph::ArgumentKind::kTensorList ? pick(4) : 1;
      for (; count > 0; --count) node.results.push_back(result(like));
    }
    b_.graph.nodes.push_back(std::move(node));
  }

  std::span<const uint8_t> bytes_;
  size_t next_ = 0;
  GraphBuilder b_;
};

}  // namespace qx::compiler
