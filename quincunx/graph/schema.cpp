#include "quincunx/graph/schema.h"

#include <algorithm>
#include <array>
#include <utility>

#include "quincunx/base/check.h"

namespace qx::graph {
namespace {

constexpr std::string_view kRows[] = {
#define QX_OPERATOR(row) row,
#include "quincunx/graph/operators.inc"
#undef QX_OPERATOR
};

// The lists stand before their elements: names are tried in this order.
constexpr std::array<std::pair<std::string_view, ArgumentKind>, 15> kKindNames = {{
    {"Tensor[]", ArgumentKind::kTensorList},
    {"Tensor", ArgumentKind::kTensor},
    {"Scalar", ArgumentKind::kScalar},
    {"int[]", ArgumentKind::kIntList},
    {"int", ArgumentKind::kInt},
    {"float[]", ArgumentKind::kFloatList},
    {"float", ArgumentKind::kFloat},
    {"bool[]", ArgumentKind::kBoolList},
    {"bool", ArgumentKind::kBool},
    {"str", ArgumentKind::kString},
    {"ScalarType", ArgumentKind::kDType},
    {"Layout", ArgumentKind::kLayout},
    {"Device", ArgumentKind::kDevice},
    {"MemoryFormat", ArgumentKind::kMemoryFormat},
    {"Generator", ArgumentKind::kGenerator},
}};

bool remove_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

ArgumentSchema parse_kind(std::string_view text) {
  ArgumentSchema result;
  result.optional = remove_suffix(text, "?");
  result.optional_elements = text == "Tensor?[]";
  if (result.optional_elements) text = "Tensor[]";
  const auto* found = std::ranges::find(kKindNames, text, &std::pair<std::string_view, ArgumentKind>::first);
  QX_CHECK_MESSAGE(found != kKindNames.end(), text);
  result.kind = found->second;
  return result;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t comma = text.find(", ");
    parts.push_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 2);
  }
  return parts;
}

OperatorSchema parse(std::string_view row) {
  const size_t open = row.find('(');
  const size_t close = row.rfind(") -> ");
  QX_CHECK_MESSAGE(open < close && close != std::string_view::npos, row);
  OperatorSchema schema{.name = row.substr(0, open), .arguments = {}, .results = {}};
  for (const std::string_view part : split(row.substr(open + 1, close - open - 1))) {
    const size_t space = part.find(' ');
    QX_CHECK_MESSAGE(space != std::string_view::npos, row);
    schema.arguments.push_back(parse_kind(part.substr(0, space)));
    schema.arguments.back().name = part.substr(space + 1);
  }
  for (const std::string_view part : split(row.substr(close + 5))) schema.results.push_back(parse_kind(part).kind);
  return schema;
}

const std::vector<OperatorSchema>& table() {
  static const std::vector<OperatorSchema> rows = [] {
    std::vector<OperatorSchema> parsed;
    for (const std::string_view row : kRows) parsed.push_back(parse(row));
    QX_CHECK(std::ranges::is_sorted(parsed, {}, &OperatorSchema::name));
    return parsed;
  }();
  return rows;
}

bool has_missing(const std::vector<TensorRef>& list) {
  return std::ranges::any_of(list, [](TensorRef ref) { return ref.id == kNoValue; });
}

bool is_number(const Argument& argument) {
  return std::holds_alternative<bool>(argument) || std::holds_alternative<Dim>(argument) ||
         std::holds_alternative<double>(argument);
}

}  // namespace

int OperatorSchema::find(std::string_view argument) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name == argument) return static_cast<int>(i);
  }
  return -1;
}

const OperatorSchema* find_schema(std::string_view op) {
  const auto& rows = table();
  const auto found = std::ranges::lower_bound(rows, op, {}, &OperatorSchema::name);
  return found != rows.end() && found->name == op ? &*found : nullptr;
}

std::span<const OperatorSchema> schemas() { return table(); }

std::string kind_text(const ArgumentSchema& argument) {
  for (const auto& [name, kind] : kKindNames) {
    if (kind != argument.kind) continue;
    return std::string(argument.optional_elements ? "Tensor?[]" : name) + (argument.optional ? "?" : "");
  }
  QX_CHECK_MESSAGE(false, "an enumerator of ArgumentKind");
  return {};
}

bool accepts(const ArgumentSchema& schema, const Argument& argument) {
  if (std::holds_alternative<std::monostate>(argument)) return schema.optional;
  switch (schema.kind) {
    case ArgumentKind::kTensor: {
      const auto* ref = std::get_if<TensorRef>(&argument);
      return ref != nullptr ? ref->id != kNoValue : is_number(argument);
    }
    case ArgumentKind::kTensorList: {
      const auto* list = std::get_if<std::vector<TensorRef>>(&argument);
      return list != nullptr && (schema.optional_elements || !has_missing(*list));
    }
    case ArgumentKind::kScalar: return is_number(argument);
    case ArgumentKind::kInt: return std::holds_alternative<Dim>(argument);
    case ArgumentKind::kIntList: return std::holds_alternative<std::vector<Dim>>(argument);
    case ArgumentKind::kFloat: return std::holds_alternative<double>(argument);
    case ArgumentKind::kFloatList: return std::holds_alternative<std::vector<double>>(argument);
    case ArgumentKind::kBool: return std::holds_alternative<bool>(argument);
    case ArgumentKind::kBoolList: return std::holds_alternative<std::vector<bool>>(argument);
    case ArgumentKind::kDType: return std::holds_alternative<DType>(argument);
    case ArgumentKind::kString:
    case ArgumentKind::kLayout:
    case ArgumentKind::kDevice:
    case ArgumentKind::kMemoryFormat: return std::holds_alternative<std::string>(argument);
    case ArgumentKind::kGenerator: return false;
  }
  return false;
}

}  // namespace qx::graph
