#include "quincunx/python/fx_arguments.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "quincunx/python/errors.h"

namespace nb = nanobind;

namespace qx::python {
namespace {

using graph::Argument;
using graph::ArgumentKind;
using graph::ArgumentSchema;

constexpr std::array<std::pair<std::string_view, ArgumentKind>, 11> kElementKinds = {{
    {"Tensor", ArgumentKind::kTensor},
    {"int", ArgumentKind::kInt},
    {"number", ArgumentKind::kScalar},
    {"float", ArgumentKind::kFloat},
    {"bool", ArgumentKind::kBool},
    {"str", ArgumentKind::kString},
    {"ScalarType", ArgumentKind::kDType},
    {"Layout", ArgumentKind::kLayout},
    {"Device", ArgumentKind::kDevice},
    {"MemoryFormat", ArgumentKind::kMemoryFormat},
    {"Generator", ArgumentKind::kGenerator},
}};

// The numbers that a schema's default values have for c10's enumerators.
constexpr std::array<std::string_view, 4> kMemoryFormats = {"contiguous_format", "preserve_format", "channels_last",
                                                            "channels_last_3d"};

std::string text_of(nb::handle value) { return nb::cast<std::string>(nb::str(value)); }

bool unwrap(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text = text.substr(prefix.size(), text.size() - prefix.size() - 1);
  return true;
}

// "Optional[List[int]]": how torch's Python shows the type of an argument.
std::optional<ArgumentSchema> parse_type(std::string_view text) {
  ArgumentSchema schema;
  schema.optional = unwrap(text, "Optional[");
  const bool list = unwrap(text, "List[");
  schema.optional_elements = list && unwrap(text, "Optional[");
  for (const auto& [name, kind] : kElementKinds) {
    if (name != text) continue;
    schema.kind = kind;
    if (!list) return schema;
    switch (kind) {
      case ArgumentKind::kTensor: schema.kind = ArgumentKind::kTensorList; return schema;
      case ArgumentKind::kInt: schema.kind = ArgumentKind::kIntList; return schema;
      case ArgumentKind::kFloat: schema.kind = ArgumentKind::kFloatList; return schema;
      case ArgumentKind::kBool: schema.kind = ArgumentKind::kBoolList; return schema;
      default: return std::nullopt;
    }
  }
  return std::nullopt;
}

[[noreturn]] void expected(const std::string& what, nb::handle value) {
  throw StatusError(type_error("expected " + what + ", got " + nb::cast<std::string>(nb::repr(value))));
}

std::string without_prefix(const std::string& text) {
  constexpr std::string_view kPrefix = "torch.";
  return text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : text;
}

bool is_sequence(nb::handle value) { return nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value); }

}  // namespace

FxArguments::FxArguments(FxTypes& types, std::function<const FxMeaning&(nb::handle)> meaning)
    : types_(types), meaning_(std::move(meaning)), node_class_(nb::module_::import_("torch.fx").attr("Node")) {}

const std::vector<FxArguments::Parameter>& FxArguments::parameters(nb::handle target) {
  const auto [entry, fresh] = parameters_.try_emplace(target.ptr());
  if (!fresh) return entry->second;
  for (const nb::handle argument : target.attr("_schema").attr("arguments")) {
    Parameter parameter;
    parameter.name = nb::cast<std::string>(argument.attr("name"));
    const std::string type = text_of(argument.attr("real_type"));
    const std::optional<ArgumentSchema> schema = parse_type(type);
    if (!schema) {
      parameters_.erase(entry);
      throw StatusError(
          unimplemented("argument \"" + parameter.name + "\" has type " + type + ", which no graph can hold"));
    }
    parameter.schema = *schema;
    const nb::object length = argument.attr("N");
    if (!length.is_none()) parameter.length = nb::cast<int64_t>(length);
    parameter.has_default = nb::cast<bool>(argument.attr("has_default_value")());
    if (parameter.has_default) parameter.default_value = argument.attr("default_value");
    entry->second.push_back(std::move(parameter));
  }
  return entry->second;
}

std::vector<Argument> FxArguments::convert(nb::handle node) {
  const auto& wanted = parameters(node.attr("target"));
  const nb::tuple positional = nb::cast<nb::tuple>(node.attr("args"));
  const nb::dict named = nb::cast<nb::dict>(node.attr("kwargs"));
  if (nb::len(positional) > wanted.size()) {
    throw StatusError(invalid_argument("expected at most " + std::to_string(wanted.size()) + " arguments, got " +
                                       std::to_string(nb::len(positional))));
  }
  std::vector<Argument> arguments;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Parameter& parameter = wanted[i];
    nb::object value;
    if (i < nb::len(positional)) {
      value = positional[i];
    } else if (named.contains(parameter.name.c_str())) {
      value = named[parameter.name.c_str()];
    } else if (parameter.has_default) {
      value = parameter.default_value;
    } else {
      throw StatusError(invalid_argument("argument \"" + parameter.name + "\" is missing"));
    }
    try {
      arguments.push_back(argument(parameter, value));
    } catch (const StatusError& error) {
      throw StatusError(
          Status(error.status().code(), "argument \"" + parameter.name + "\": " + error.status().message()));
    }
  }
  return arguments;
}

// The number behind a node that stands for one; anything else as it is.
nb::object FxArguments::resolved(nb::handle value) const {
  if (is_node(value)) {
    const FxMeaning& meaning = meaning_(value);
    if (meaning.kind == FxMeaning::kNumber) return meaning.number;
  }
  return nb::borrow<nb::object>(value);
}

bool FxArguments::is_tensor_node(nb::handle value) const {
  return is_node(value) && meaning_(value).kind == FxMeaning::kValue;
}

graph::TensorRef FxArguments::tensor(nb::handle value) const {
  if (!is_tensor_node(value)) expected("a tensor", value);
  return {meaning_(value).value};
}

graph::Dim FxArguments::number(nb::handle value) {
  const nb::object resolved_value = resolved(value);
  if (nb::isinstance<nb::bool_>(resolved_value)) return {.value = nb::cast<bool>(resolved_value) ? 1 : 0};
  if (!types_.is_int(resolved_value)) expected("an integer", value);
  return types_.dim(resolved_value);
}

double FxArguments::real(nb::handle value) const {
  const nb::object resolved_value = resolved(value);
  const bool plain = nb::isinstance<nb::float_>(resolved_value) || nb::isinstance<nb::int_>(resolved_value);
  if (!plain) expected("a floating-point number that does not depend on sizes", value);
  return nb::cast<double>(nb::float_(resolved_value));
}

Argument FxArguments::scalar(nb::handle value) {
  const nb::object resolved_value = resolved(value);
  if (nb::isinstance<nb::bool_>(resolved_value)) return nb::cast<bool>(resolved_value);
  if (types_.is_int(resolved_value)) return types_.dim(resolved_value);
  if (nb::isinstance<nb::float_>(resolved_value)) return nb::cast<double>(resolved_value);
  expected("a number", value);
}

Argument FxArguments::ints(const Parameter& parameter, nb::handle value) {
  std::vector<graph::Dim> dims;
  if (is_sequence(value)) {
    for (const nb::handle element : value) dims.push_back(number(element));
  } else {
    dims.assign(static_cast<size_t>(std::max<int64_t>(parameter.length, 1)), number(value));
  }
  return dims;
}

Argument FxArguments::argument(const Parameter& parameter, nb::handle value) {
  if (value.is_none()) {
    if (!parameter.schema.optional) expected(graph::kind_text(parameter.schema), value);
    return std::monostate{};
  }
  if (is_node(value) && meaning_(value).kind == FxMeaning::kNothing) {
    if (parameter.schema.optional) return std::monostate{};
    expected(graph::kind_text(parameter.schema) + " that a graph can hold", value);
  }
  switch (parameter.schema.kind) {
    case ArgumentKind::kTensor: return is_tensor_node(value) ? Argument(tensor(value)) : scalar(value);
    case ArgumentKind::kScalar: return scalar(value);
    case ArgumentKind::kInt: return number(value);
    case ArgumentKind::kIntList: return ints(parameter, value);
    case ArgumentKind::kFloat: return real(value);
    case ArgumentKind::kString: return nb::cast<std::string>(value);
    case ArgumentKind::kDevice: return text_of(value);
    case ArgumentKind::kBool: {
      const nb::object flag = resolved(value);
      if (!nb::isinstance<nb::int_>(flag)) expected("a bool", value);
      return nb::cast<bool>(nb::bool_(flag));
    }
    case ArgumentKind::kDType:
      if (!types_.is_dtype(value)) expected("a torch.dtype", value);
      return types_.dtype(value);
    case ArgumentKind::kLayout: return types_.is_int(value) ? std::string("strided") : without_prefix(text_of(value));
    case ArgumentKind::kMemoryFormat: {
      if (!types_.is_int(value)) return without_prefix(text_of(value));
      const auto index = nb::cast<size_t>(value);
      if (index >= kMemoryFormats.size()) expected("a memory format", value);
      return std::string(kMemoryFormats[index]);
    }
    case ArgumentKind::kGenerator: expected("no generator: a graph draws from none of its own", value);
    default: break;
  }
  if (parameter.schema.kind == ArgumentKind::kTensorList && is_node(value)) {
    std::vector<graph::TensorRef> refs;  // the result of an operator that gives a list
    for (const FxMeaning& element : meaning_(value).elements) refs.push_back({element.value});
    return refs;
  }
  if (!is_sequence(value)) expected(graph::kind_text(parameter.schema), value);
  if (parameter.schema.kind == ArgumentKind::kTensorList) {
    std::vector<graph::TensorRef> refs;
    for (const nb::handle element : value) refs.push_back(element.is_none() ? graph::TensorRef{} : tensor(element));
    return refs;
  }
  if (parameter.schema.kind == ArgumentKind::kFloatList) {
    std::vector<double> numbers;
    for (const nb::handle element : value) numbers.push_back(real(element));
    return numbers;
  }
  std::vector<bool> flags;
  for (const nb::handle element : value) flags.push_back(nb::cast<bool>(nb::bool_(resolved(element))));
  return flags;
}

}  // namespace qx::python
