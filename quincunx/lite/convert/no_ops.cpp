#include "quincunx/lite/convert/no_ops.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "quincunx/lite/convert/edit.h"

namespace qx::lite {
namespace {

using graph::Argument;
using graph::Dim;
using graph::Graph;
using graph::Node;
using graph::TensorRef;

// Their result is argument 0 where it has the same shape and dtype: none of them moves an element unless the shape
// changes. Not transpose or permute, which may give back the same shape with the elements elsewhere.
constexpr std::array<std::string_view, 15> kSameWhereTypeIsSame = {
    "aten._to_copy.default",   "aten._unsafe_view.default", "aten.alias.default",  "aten.clone.default",
    "aten.contiguous.default", "aten.detach.default",       "aten.expand.default", "aten.lift_fresh_copy.default",
    "aten.reshape.default",    "aten.slice.Tensor",         "aten.to.device",      "aten.to.dtype",
    "aten.to.dtype_layout",    "aten.view.default",         "aten.view_as.default"};

bool is_number(const Argument& argument, int64_t expected) {
  if (const auto* dim = std::get_if<Dim>(&argument)) return *dim == Dim{expected};
  if (const auto* real = std::get_if<double>(&argument)) return *real == static_cast<double>(expected);
  return false;
}

bool is_integer(DType dtype) { return dtype <= DType::kUInt64; }

bool is_no_op(const Node& node, DType dtype) {
  if (std::binary_search(kSameWhereTypeIsSame.begin(), kSameWhereTypeIsSame.end(), node.op)) return true;
  const auto argument = [&](size_t index) {
    return node.arguments.size() > index ? node.arguments[index] : Argument();
  };
  if (node.op == "aten.dropout.default") return argument(2) == Argument(false);
  if (node.op == "aten.add.Tensor" || node.op == "aten.add.Scalar") {
    return is_integer(dtype) && is_number(argument(1), 0);  // -0.0 + 0 is 0.0
  }
  if (node.op == "aten.mul.Tensor" || node.op == "aten.mul.Scalar") return is_number(argument(1), 1);
  return false;
}

}  // namespace

int bypass_no_ops(Graph& graph) {
  std::vector<graph::ValueId> replacements = no_replacements(graph);
  int count = 0;
  for (const Node& node : graph.nodes) {
    if (node.arguments.empty() || node.results.size() != 1 || node.results[0] == graph::kNoValue) continue;
    const graph::TensorType& after = graph.values[static_cast<size_t>(node.results[0])].type;
    const auto* source = std::get_if<TensorRef>(&node.arguments[0]);
    if (source == nullptr || source->id == graph::kNoValue || !is_no_op(node, after.dtype)) continue;
    const graph::TensorType& before = graph.values[static_cast<size_t>(source->id)].type;
    if (!(before == after)) continue;
    replacements[static_cast<size_t>(node.results[0])] = source->id;
    ++count;
  }
  replace_values(graph, std::move(replacements));
  return count;
}

}  // namespace qx::lite
