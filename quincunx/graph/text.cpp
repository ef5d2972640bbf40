#include "quincunx/graph/text.h"

#include <array>
#include <charconv>
#include <string_view>

namespace qx::graph {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// The shortest text that reads back as the same number, with a point or an exponent so that it is no integer.
std::string double_text(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

template <typename List, typename Text>
std::string list_text(const List& list, const Text& text) {
  std::string out = "[";
  for (size_t i = 0; i < list.size(); ++i) out += (i == 0 ? "" : ", ") + text(list[i]);
  return out + "]";
}

std::string value_text(ValueId id) { return id == kNoValue ? "none" : "%" + std::to_string(id); }
std::string ref_text(TensorRef ref) { return value_text(ref.id); }
std::string bool_text(bool value) { return value ? "true" : "false"; }

struct ArgumentText {
  std::span<const Symbol> symbols;

  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(TensorRef ref) const { return ref_text(ref); }
  std::string operator()(const std::vector<TensorRef>& refs) const { return list_text(refs, ref_text); }
  std::string operator()(bool value) const { return bool_text(value); }
  std::string operator()(const Dim& dim) const { return dim_text(dim, symbols); }
  std::string operator()(double value) const { return double_text(value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(DType dtype) const { return std::string(dtype_name(dtype)); }
  std::string operator()(const std::vector<Dim>& dims) const {
    return list_text(dims, [this](const Dim& dim) { return dim_text(dim, symbols); });
  }
  std::string operator()(const std::vector<double>& values) const { return list_text(values, double_text); }
  std::string operator()(const std::vector<bool>& values) const { return list_text(values, bool_text); }
};

// %0 "x": float32[s0, 64]
std::string declaration(const Graph& graph, ValueId id, bool with_name) {
  const auto index = static_cast<size_t>(id);
  if (id < 0 || index >= graph.values.size()) return value_text(id);
  const Value& value = graph.values[index];
  return value_text(id) + (with_name ? " " + quoted(value.name) : "") + ": " + type_text(value.type, graph.symbols);
}

std::string node_text(const Graph& graph, const Node& node) {
  const auto result = [&](ValueId id) { return declaration(graph, id, false); };
  std::string line;
  for (size_t i = 0; i < node.results.size(); ++i) line += (i == 0 ? "" : ", ") + result(node.results[i]);
  line += (node.results.empty() ? "" : " = ") + node.op + "(";
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    line += (i == 0 ? "" : ", ") + argument_text(node.arguments[i], graph.symbols);
  }
  return line + ")\n";
}

}  // namespace

std::string dim_text(const Dim& dim, std::span<const Symbol> symbols) {
  if (dim.is_known()) return std::to_string(dim.value);
  const auto index = static_cast<size_t>(dim.symbol);
  std::string name = index < symbols.size() ? symbols[index].name : "symbol" + std::to_string(dim.symbol);
  if (name.find(' ') != std::string::npos) name = "(" + name + ")";
  std::string text = dim.multiplier == 1 ? name : std::to_string(dim.multiplier) + "*" + name;
  if (dim.value > 0) text += " + " + std::to_string(dim.value);
  if (dim.value < 0) text += " - " + std::to_string(dim.value).substr(1);
  return text;
}

std::string type_text(const TensorType& type, std::span<const Symbol> symbols) {
  return std::string(dtype_name(type.dtype)) +
         list_text(type.shape, [&](const Dim& dim) { return dim_text(dim, symbols); });
}

std::string argument_text(const Argument& argument, std::span<const Symbol> symbols) {
  return std::visit(ArgumentText{symbols}, argument);
}

std::string to_text(const Graph& graph) {
  std::string text = "graph " + quoted(graph.name) + "\n";
  for (const Symbol& symbol : graph.symbols) {
    text += "symbol " + symbol.name + " from " + std::to_string(symbol.min) +
            (symbol.max == INT64_MAX ? "" : " to " + std::to_string(symbol.max)) + "\n";
  }
  for (const ValueId id : graph.inputs) text += "input " + declaration(graph, id, true) + "\n";
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].constant >= 0) {
      text += "constant " + declaration(graph, static_cast<ValueId>(i), true) + "\n";
    }
  }
  for (const State& state : graph.states) {
    text += "state " + quoted(state.name) + ": " + declaration(graph, state.input, false) + ", then " +
            value_text(state.output) + "\n";
  }
  for (const Node& node : graph.nodes) text += node_text(graph, node);
  for (const ValueId id : graph.outputs) text += "output " + value_text(id) + "\n";
  return text;
}

}  // namespace qx::graph
