#include "quincunx/lite/plan/fuse.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/lite/plan/arguments.h"

namespace qx::lite {
namespace {

using graph::Node;
using graph::TensorRef;
using graph::ValueId;

constexpr size_t kActivation = 4;
constexpr size_t kResidual = 5;

bool is_number(const Node& node, size_t index, double value) {
  if (index >= node.arguments.size()) return true;  // a default, which is 1 where this is asked
  if (const auto* dim = std::get_if<graph::Dim>(&node.arguments[index])) {
    return dim->is_known() && static_cast<double>(dim->value) == value;
  }
  const auto* real = std::get_if<double>(&node.arguments[index]);
  return real != nullptr && *real == value;
}

ValueId tensor(const Node& node, size_t index) {
  if (index >= node.arguments.size()) return graph::kNoValue;
  const auto* ref = std::get_if<TensorRef>(&node.arguments[index]);
  return ref == nullptr ? graph::kNoValue : ref->id;
}

class Fuser {
 public:
  explicit Fuser(graph::Graph& graph)
      : graph_(graph), num_uses_(graph.values.size(), 0), producer_(graph.values.size(), -1) {
    for (const Node& node : graph.nodes) {
      for_each_tensor(node, [&](ValueId id) { ++num_uses_[static_cast<size_t>(id)]; });
    }
    for (const ValueId id : graph.outputs) num_uses_[static_cast<size_t>(id)] += 2;
    for (const graph::State& state : graph.states) num_uses_[static_cast<size_t>(state.output)] += 2;
  }

  int run() {
    std::vector<bool> gone(graph_.nodes.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      if (as_product(node)) {
        producer_[static_cast<size_t>(node.results[0])] = static_cast<int>(i);
        continue;
      }
      const int product = take_activation(node) ? producer_of(tensor(node, 0)) : take_residual(node);
      if (product < 0) continue;
      // The product moves to the place of the node that it took, where the residual exists already.
      const ValueId result = node.results[0];
      Node moved = std::move(graph_.nodes[static_cast<size_t>(product)]);
      moved.results = {result};
      node = std::move(moved);
      gone[static_cast<size_t>(product)] = true;
      producer_[static_cast<size_t>(result)] = static_cast<int>(i);
    }
    std::vector<Node> kept;
    for (size_t i = 0; i < gone.size(); ++i) {
      if (!gone[i]) kept.push_back(std::move(graph_.nodes[i]));
    }
    const auto count = static_cast<int>(graph_.nodes.size() - kept.size());
    graph_.nodes = std::move(kept);
    return count;
  }

 private:
  bool is_f32(ValueId id) const { return graph_.values[static_cast<size_t>(id)].type.dtype == DType::kFloat32; }

  // Rewrites linear, mm and addmm, so that the rest has one form to look at.
  bool as_product(Node& node) const {
    if (node.op == "qx.linear") return true;
    const bool linear = node.op == "aten.linear.default";
    const bool mm = node.op == "aten.mm.default";
    const bool addmm = node.op == "aten.addmm.default";
    if (!linear && !mm && !addmm) return false;
    const size_t first = addmm ? 1 : 0;
    const ValueId x = tensor(node, first), weight = tensor(node, first + 1);
    if (!is_f32(x) || !is_f32(weight) || !is_f32(node.results[0])) return false;
    if (addmm) {
      const graph::TensorType& bias = graph_.values[static_cast<size_t>(tensor(node, 0))].type;
      const graph::TensorType& out = graph_.values[static_cast<size_t>(node.results[0])].type;
      if (!is_number(node, 3, 1) || !is_number(node, 4, 1) || bias.shape.size() != 1 || out.shape.size() != 2 ||
          bias.shape[0] != out.shape[1] || !is_f32(tensor(node, 0))) {
        return false;
      }
    }
    graph::Argument bias = std::monostate();
    if (addmm) bias = node.arguments[0];
    if (linear && node.arguments.size() > 2) bias = node.arguments[2];
    node.arguments = {TensorRef{x},        TensorRef{weight}, bias, std::string(linear ? "nk" : "kn"),
                      std::string("none"), std::monostate()};
    node.op = "qx.linear";
    return true;
  }

  // The index of the product that gives `id` to one reader only; -1 where there is none.
  int producer_of(ValueId id) const {
    if (id == graph::kNoValue || num_uses_[static_cast<size_t>(id)] != 1) return -1;
    return producer_[static_cast<size_t>(id)];
  }

  std::string activation_name(const Node& node) const {
    if (node.op == "aten.relu.default") return "relu";
    if (node.op == "aten.silu.default") return "silu";
    if (node.op != "aten.gelu.default") return "";
    const auto* approximate = node.arguments.size() > 1 ? std::get_if<std::string>(&node.arguments[1]) : nullptr;
    return approximate != nullptr && *approximate == "tanh" ? "gelu_tanh" : "gelu_erf";
  }

  bool take_activation(const Node& node) {
    const std::string name = activation_name(node);
    const int product = name.empty() ? -1 : producer_of(tensor(node, 0));
    if (product < 0) return false;
    std::vector<graph::Argument>& arguments = graph_.nodes[static_cast<size_t>(product)].arguments;
    if (std::get<std::string>(arguments[kActivation]) != "none" ||
        !std::holds_alternative<std::monostate>(arguments[kResidual])) {
      return false;
    }
    arguments[kActivation] = name;
    return true;
  }

  int take_residual(const Node& node) {
    if (node.op != "aten.add.Tensor" || !is_number(node, 2, 1)) return -1;
    const ValueId left = tensor(node, 0), right = tensor(node, 1);
    if (left == graph::kNoValue || right == graph::kNoValue || left == right) return -1;
    const graph::TensorType& type = graph_.values[static_cast<size_t>(node.results[0])].type;
    for (const auto& [sum, added] : {std::pair(left, right), std::pair(right, left)}) {
      const int product = producer_of(sum);
      if (product < 0 || graph_.values[static_cast<size_t>(sum)].type != type ||
          graph_.values[static_cast<size_t>(added)].type != type) {
        continue;
      }
      graph::Argument& residual = graph_.nodes[static_cast<size_t>(product)].arguments[kResidual];
      if (!std::holds_alternative<std::monostate>(residual)) continue;
      residual = TensorRef{added};
      return product;
    }
    return -1;
  }

  graph::Graph& graph_;
  std::vector<int> num_uses_;
  std::vector<int> producer_;
};

}  // namespace

int remove_unused_nodes(graph::Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const ValueId id : graph.outputs) needed[static_cast<size_t>(id)] = true;
  for (const graph::State& state : graph.states) needed[static_cast<size_t>(state.output)] = true;
  std::vector<Node> kept;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    const bool wanted = std::any_of(node.results.begin(), node.results.end(), [&](ValueId id) {
      return id != graph::kNoValue && needed[static_cast<size_t>(id)];
    });
    if (!wanted) continue;
    for_each_tensor(node, [&](ValueId id) { needed[static_cast<size_t>(id)] = true; });
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  const auto count = static_cast<int>(graph.nodes.size() - kept.size());
  graph.nodes = std::move(kept);
  return count;
}

int fuse_epilogues(graph::Graph& graph) { return Fuser(graph).run(); }

}  // namespace qx::lite
