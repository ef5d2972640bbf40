#include "quincunx/python/fx_types.h"

#include <nanobind/stl/string.h>

#include <string>

#include "quincunx/python/errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace qx::python {
namespace {

std::string text_of(nb::handle value) { return nb::cast<std::string>(nb::str(value)); }

int64_t to_int64(nb::handle value) {
  int64_t number = 0;
  if (!nb::try_cast<int64_t>(nb::int_(nb::borrow<nb::object>(value)), number)) {
    throw StatusError(invalid_argument("expected an integer of 64 bits, got " + text_of(value)));
  }
  return number;
}

bool is_integer(nb::handle expression) { return nb::cast<bool>(expression.attr("is_Integer")); }

// expression = multiplier * symbol + offset, if it is of that form.
struct Affine {
  bool found = false;
  int64_t multiplier = 0;
  int64_t offset = 0;
  nb::object symbol;
};

Affine split_affine(nb::handle expression) {
  const nb::object free = expression.attr("free_symbols");
  if (nb::len(free) != 1) return {};
  nb::object symbol = nb::borrow<nb::object>(*nb::iter(free));
  const nb::object sum = expression.attr("as_independent")(symbol, "as_Add"_a = true);
  const nb::object product = sum[1].attr("as_independent")(symbol, "as_Add"_a = false);
  if (!product[1].equal(symbol) || !is_integer(sum[0]) || !is_integer(product[0])) return {};
  return {.found = true, .multiplier = to_int64(product[0]), .offset = to_int64(sum[0]), .symbol = std::move(symbol)};
}

}  // namespace

FxTypes::FxTypes(graph::Graph& graph) : graph_(graph) {
  const nb::module_ torch = nb::module_::import_("torch");
  tensor_class_ = torch.attr("Tensor");
  sym_int_class_ = torch.attr("SymInt");
  sym_bool_class_ = torch.attr("SymBool");
  sym_float_class_ = torch.attr("SymFloat");
  dtype_class_ = torch.attr("dtype");
}

bool FxTypes::is_tensor(nb::handle value) const { return nb::isinstance(value, tensor_class_); }
bool FxTypes::is_sym_int(nb::handle value) const { return nb::isinstance(value, sym_int_class_); }
bool FxTypes::is_dtype(nb::handle value) const { return nb::isinstance(value, dtype_class_); }

bool FxTypes::is_int(nb::handle value) const {
  return (nb::isinstance<nb::int_>(value) && !nb::isinstance<nb::bool_>(value)) || is_sym_int(value);
}

bool FxTypes::is_other_symbolic(nb::handle value) const {
  return nb::isinstance(value, sym_bool_class_) || nb::isinstance(value, sym_float_class_);
}

DType FxTypes::dtype(nb::handle torch_dtype) const {
  const std::string name = text_of(torch_dtype);
  constexpr std::string_view kPrefix = "torch.";
  const Result<DType> found = dtype_from_name(name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name);
  if (!found.ok()) throw StatusError(type_error("expected a dtype that quincunx knows, got " + name));
  return *found;
}

graph::TensorType FxTypes::tensor_type(nb::handle tensor) {
  const std::string device = text_of(tensor.attr("device"));
  if (device != "cpu") throw StatusError(type_error("expected a tensor on the CPU, got one on \"" + device + "\""));
  const std::string layout = text_of(tensor.attr("layout"));
  if (layout != "torch.strided") throw StatusError(type_error("expected a strided tensor, got layout " + layout));
  graph::TensorType type{.dtype = dtype(tensor.attr("dtype")), .shape = {}};
  for (const nb::handle size : tensor.attr("shape")) type.shape.push_back(dim(size));
  return type;
}

graph::Dim FxTypes::dim(nb::handle value) {
  if (!is_sym_int(value)) return {.value = to_int64(value)};
  const nb::object node = value.attr("node");
  const nb::object expression = node.attr("expr");
  if (is_integer(expression)) return {.value = to_int64(expression)};
  const nb::object shape_env = node.attr("shape_env");
  const Affine affine = split_affine(expression);
  if (!affine.found) return {.value = 0, .multiplier = 1, .symbol = symbol(expression, shape_env)};
  return {.value = affine.offset, .multiplier = affine.multiplier, .symbol = symbol(affine.symbol, shape_env)};
}

int32_t FxTypes::symbol(nb::handle expression, nb::handle shape_env) {
  if (symbols_.contains(expression)) return nb::cast<int32_t>(symbols_[expression]);
  const nb::object range = shape_env.attr("bound_sympy")(expression);
  const auto bound = [](const nb::object& limit, int64_t without) {
    int64_t number = 0;
    if (!is_integer(limit)) return without;
    return nb::try_cast<int64_t>(nb::int_(limit), number) ? number : without;
  };
  const auto index = static_cast<int32_t>(graph_.symbols.size());
  graph_.symbols.push_back({.name = text_of(expression),
                            .min = bound(range.attr("lower"), INT64_MIN),
                            .max = bound(range.attr("upper"), INT64_MAX)});
  symbols_[expression] = index;
  expressions_.push_back(nb::borrow<nb::object>(expression));
  return index;
}

}  // namespace qx::python
