#include "quincunx/lite/plan/channel_layout.h"

#include <algorithm>

#include "quincunx/lite/ops/operator.h"
#include "quincunx/lite/plan/arguments.h"

namespace qx::lite {
namespace {

using graph::Node;
using graph::ValueId;

class Layouts {
 public:
  explicit Layouts(const graph::Graph& graph)
      : graph_(graph), wanted_(graph.values.size(), false), chosen_(graph.values.size(), false) {}

  std::vector<bool> run() {
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) spread_wish(*node);
    for (const ValueId id : graph_.outputs) wanted_[static_cast<size_t>(id)] = false;
    for (const graph::State& state : graph_.states) wanted_[static_cast<size_t>(state.output)] = false;
    for (const Node& node : graph_.nodes) choose(node);
    return std::move(chosen_);
  }

 private:
  const graph::TensorType& type(ValueId id) const { return graph_.values[static_cast<size_t>(id)].type; }
  size_t rank(ValueId id) const { return type(id).shape.size(); }

  bool has_image(const Node& node) const {
    if (node.results.empty() || node.results[0] == graph::kNoValue) return false;
    const size_t dims = rank(node.results[0]);
    return type(node.results[0]).dtype == DType::kFloat32 && dims >= 3 && dims <= 5;
  }

  // A convolution of batches: a single image has other dimensions than its weight.
  bool convolves(const Node& node, const Operator& entry) const {
    if (entry.layout != ChannelLayout::kPrefersAdjacent || !has_image(node)) return false;
    const auto* weight = std::get_if<graph::TensorRef>(&node.arguments[1]);
    return weight != nullptr && rank(weight->id) == rank(node.results[0]);
  }

  bool keeps_layout(const Node& node, const Operator& entry) const {
    return (entry.elementwise || entry.layout == ChannelLayout::kKeeps) && has_image(node);
  }

  // Calls visit(id) for the images that an operator reads.
  template <typename Visit>
  void for_each_image(const Node& node, const Operator& entry, const Visit& visit) const {
    const size_t dims = rank(node.results[0]);
    for_each_tensor(node, [&](ValueId id) {
      const bool is_image = entry.elementwise || std::get<graph::TensorRef>(node.arguments[0]).id == id;
      if (is_image && rank(id) == dims) visit(static_cast<size_t>(id));
    });
  }

  void spread_wish(const Node& node) {
    const Operator* entry = find_operator(node.op);
    if (entry == nullptr) return;
    const bool is_wanted =
        convolves(node, *entry) || (keeps_layout(node, *entry) && wanted_[static_cast<size_t>(node.results[0])]);
    if (!is_wanted) return;
    if (convolves(node, *entry)) {
      wanted_[static_cast<size_t>(std::get<graph::TensorRef>(node.arguments[0]).id)] = true;
    } else {
      for_each_image(node, *entry, [&](size_t id) { wanted_[id] = true; });
    }
  }

  void choose(const Node& node) {
    const Operator* entry = find_operator(node.op);
    if (entry == nullptr || !has_image(node) || !wanted_[static_cast<size_t>(node.results[0])]) return;
    bool is_chosen = convolves(node, *entry);
    if (!is_chosen && keeps_layout(node, *entry)) {
      for_each_image(node, *entry, [&](size_t id) { is_chosen = is_chosen || chosen_[id]; });
    }
    chosen_[static_cast<size_t>(node.results[0])] = is_chosen;
  }

  const graph::Graph& graph_;
  std::vector<bool> wanted_;  // a convolution reads it, or what becomes of it element by element
  std::vector<bool> chosen_;
};

}  // namespace

std::vector<bool> values_with_adjacent_channels(const graph::Graph& graph) { return Layouts(graph).run(); }

}  // namespace qx::lite
