#include <algorithm>
#include <string>
#include <unordered_map>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/operator.h"

namespace qx::lite {
namespace {

using Table = std::unordered_map<std::string_view, const Operator*>;

Table make_table() {
  Table table;
  for (const std::span<const Operator> family :
       {activation_operators(), attention_operators(),     binary_operators(),      cached_attention_operators(),
        comparison_operators(), concatenation_operators(), convolution_operators(), copy_operators(),
        creation_operators(),   embedding_operators(),     grid_sample_operators(), index_operators(),
        linear_operators(),     matmul_operators(),        norm_operators(),        pad_operators(),
        pool_operators(),       reduction_operators(),     scan_operators(),        softmax_operators(),
        sort_operators(),       ternary_operators(),       tile_operators(),        triangle_operators(),
        unary_operators(),      upsample_operators(),      view_operators()}) {
    for (const Operator& entry : family) {
      const bool added = table.emplace(entry.name, &entry).second;
      QX_CHECK_MESSAGE(added, std::string(entry.name) + " has two rows");
    }
  }
  return table;
}

const Table& table() {
  static const Table& instance = *new Table(make_table());
  return instance;
}

bool may_be_missing(char kind) { return std::string_view("tgbjJRds*").find(kind) != std::string_view::npos; }

template <typename... Types>
bool holds(const graph::Argument& argument) {
  return (std::holds_alternative<Types>(argument) || ...);
}

bool is_list_of_tensors(const graph::Argument& argument, bool with_absent) {
  const auto* list = std::get_if<std::vector<graph::TensorRef>>(&argument);
  return list != nullptr && (with_absent || std::all_of(list->begin(), list->end(), [](graph::TensorRef ref) {
                               return ref.id != graph::kNoValue;
                             }));
}

bool is_tensor(const graph::Argument& argument) {
  const auto* ref = std::get_if<graph::TensorRef>(&argument);
  return ref != nullptr && ref->id != graph::kNoValue;
}

bool is_integers(const graph::Argument& argument) {
  // An empty list has no type of its own: importers write it as any of the lists.
  const auto* none = std::get_if<std::vector<graph::TensorRef>>(&argument);
  return holds<graph::Dim, std::vector<graph::Dim>>(argument) || (none != nullptr && none->empty());
}

bool is_of_kind(const graph::Argument& argument, char kind) {
  if (kind == '*' || (holds<std::monostate>(argument) && may_be_missing(kind))) return true;
  switch (kind) {
    case 'T':
    case 't': return is_tensor(argument);
    case 'L': return is_list_of_tensors(argument, false);
    case 'K': return is_list_of_tensors(argument, true);
    case 'S': return is_tensor(argument) || holds<bool, graph::Dim, double>(argument);
    case 'n':
    case 'g': return holds<bool, graph::Dim, double>(argument);
    case 'b': return holds<bool>(argument);
    case 'i':
    case 'j': return holds<graph::Dim>(argument);
    case 'I':
    case 'J': return is_integers(argument);
    case 'R': return holds<std::vector<double>>(argument);
    case 'd': return holds<DType>(argument);
    case 's': return holds<std::string>(argument);
    default: QX_CHECK_MESSAGE(false, "a signature has an unknown letter"); return false;
  }
}

std::string_view kind_name(char kind) {
  switch (kind) {
    case 'T':
    case 't': return "a tensor";
    case 'L':
    case 'K': return "a list of tensors";
    case 'S': return "a tensor or a number";
    case 'n':
    case 'g': return "a number";
    case 'b': return "a bool";
    case 'i':
    case 'j': return "an integer";
    case 'I':
    case 'J': return "a list of integers";
    case 'R': return "a list of numbers";
    case 'd': return "a dtype";
    default: return "a string";
  }
}

}  // namespace

const Operator* find_operator(std::string_view name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : found->second;
}

std::vector<std::string_view> operator_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, entry] : table()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

Status check_signature(const graph::Node& node, const Operator& entry) {
  const std::string where = "node '" + node.name + "' (" + node.op + "): ";
  if (node.arguments.size() > entry.signature.size()) {
    return invalid_argument(where + "expected at most " + std::to_string(entry.signature.size()) + " arguments, got " +
                            std::to_string(node.arguments.size()));
  }
  for (size_t i = 0; i < entry.signature.size(); ++i) {
    const char kind = entry.signature[i];
    const bool fits = i < node.arguments.size() ? is_of_kind(node.arguments[i], kind) : may_be_missing(kind);
    if (!fits)
      return invalid_argument(where + "argument " + std::to_string(i) + " must be " + std::string(kind_name(kind)));
  }
  if (node.results.empty() || node.results[0] == graph::kNoValue) return invalid_argument(where + "has no result");
  return ok_status();
}

}  // namespace qx::lite
