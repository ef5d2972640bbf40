#include "quincunx/compiler/import/memory_effects.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace qx::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;

// "add_" of "aten.add_.Tensor", and "Tensor".
std::pair<std::string_view, std::string_view> nameAndOverload(std::string_view op) {
  size_t last = op.rfind('.');
  if (last == std::string_view::npos) return {op, ""};
  std::string_view overload = op.substr(last + 1), name = op.substr(0, last);
  size_t space = name.rfind('.');
  return {space == std::string_view::npos ? name : name.substr(space + 1), overload};
}

bool isInPlace(std::string_view name) { return name.size() > 1 && name.back() == '_' && name[name.size() - 2] != '_'; }

bool isOut(std::string_view overload) { return overload == "out" || overload.ends_with("_out"); }

bool isRandom(std::string_view name) {
  static constexpr std::array kNames = {"rand",         "rand_like", "randn",          "randn_like",  "randint",
                                        "randint_like", "randperm",  "bernoulli",      "multinomial", "normal",
                                        "dropout",      "uniform",   "native_dropout", "rrelu",       "seeds"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || name.find("random") != std::string_view::npos;
}

bool isView(std::string_view name) {
  static constexpr std::array kNames = {"alias",
                                        "detach",
                                        "view",
                                        "_unsafe_view",
                                        "reshape",
                                        "view_as",
                                        "permute",
                                        "transpose",
                                        "t",
                                        "numpy_T",
                                        "expand",
                                        "expand_as",
                                        "squeeze",
                                        "unsqueeze",
                                        "slice",
                                        "select",
                                        "narrow",
                                        "split",
                                        "chunk",
                                        "unbind",
                                        "diagonal",
                                        "as_strided",
                                        "contiguous",
                                        "flatten",
                                        "movedim",
                                        "unflatten",
                                        "view_as_real",
                                        "view_as_complex",
                                        "split_with_sizes",
                                        "to",
                                        "broadcast_to",
                                        "type_as",
                                        "_to_copy",
                                        "real",
                                        "imag",
                                        "swapaxes",
                                        "unfold"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::string_view targetOf(const Node& node) {
  // What the graph does not know by name holds its target's name as its first argument.
  const auto* target = node.arguments.empty() ? nullptr : std::get_if<std::string>(&node.arguments.front());
  return node.op == "fx.opaque" && target ? std::string_view(*target) : std::string_view(node.op);
}

ValueId tensorOf(const graph::Argument& argument) {
  const auto* reference = std::get_if<graph::TensorRef>(&argument);
  if (reference) return reference->id;
  const auto* list = std::get_if<std::vector<graph::TensorRef>>(&argument);
  return list && !list->empty() ? list->front().id : kNoValue;
}

ValueId firstTensor(const Node& node) {
  for (const graph::Argument& argument : node.arguments) {
    if (ValueId id = tensorOf(argument); id != kNoValue) return id;
  }
  return kNoValue;
}

}  // namespace

bool hasEffect(const Node& node) {
  auto [name, overload] = nameAndOverload(targetOf(node));
  return isInPlace(name) || isOut(overload) || isRandom(name);
}

ValueId writtenValue(const Node& node) {
  auto [name, overload] = nameAndOverload(targetOf(node));
  if (isInPlace(name)) return firstTensor(node);
  if (!isOut(overload)) return kNoValue;
  for (auto argument = node.arguments.rbegin(); argument != node.arguments.rend(); ++argument) {
    if (ValueId id = tensorOf(*argument); id != kNoValue) return id;
  }
  return kNoValue;
}

std::vector<ValueId> memoryOwners(const graph::Graph& graph) {
  std::vector<ValueId> owners(graph.values.size());
  for (size_t id = 0; id < owners.size(); ++id) owners[id] = static_cast<ValueId>(id);
  for (const Node& node : graph.nodes) {
    ValueId source = writtenValue(node);
    if (source == kNoValue && isView(nameAndOverload(targetOf(node)).first)) source = firstTensor(node);
    if (source == kNoValue) continue;
    for (ValueId result : node.results) owners[static_cast<size_t>(result)] = owners[static_cast<size_t>(source)];
  }
  return owners;
}

}  // namespace qx::compiler
