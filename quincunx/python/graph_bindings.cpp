#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>

#include "quincunx/graph/graph.h"
#include "quincunx/graph/schema.h"
#include "quincunx/graph/text.h"
#include "quincunx/python/bindings.h"
#include "quincunx/python/errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace qx::python {
namespace {

using graph::Dim;
using graph::Graph;
using graph::Node;
using graph::TensorRef;
using graph::Value;

struct ToPython {
  nb::object operator()(std::monostate) const { return nb::none(); }
  nb::object operator()(const Dim& dim) const { return dim.is_known() ? nb::cast(dim.value) : nb::cast(dim); }
  nb::object operator()(TensorRef ref) const { return ref.id == graph::kNoValue ? nb::none() : nb::cast(ref); }
  nb::object operator()(DType dtype) const { return nb::cast(dtype); }
  nb::object operator()(bool flag) const { return nb::bool_(flag); }
  nb::object operator()(double number) const { return nb::float_(number); }
  nb::object operator()(const std::string& text) const { return nb::cast(text); }
  template <typename T>
  nb::object operator()(const std::vector<T>& list) const {
    nb::list result;
    for (const auto& element : list) result.append((*this)(static_cast<T>(element)));
    return result;
  }
};

nb::list arguments_of(const Node& node) {
  nb::list result;
  for (const graph::Argument& argument : node.arguments) result.append(std::visit(ToPython{}, argument));
  return result;
}

void bind_parts(nb::module_& module) {
  nb::enum_<DType> dtypes(module, "DType");
  for (int code = 0; code <= static_cast<int>(DType::kComplex128); ++code) {
    const auto dtype = static_cast<DType>(code);
    dtypes.value(std::string(dtype_name(dtype)).c_str(), dtype);
  }
  nb::class_<Dim>(module, "Dim", "A size: multiplier * symbol + value.")
      .def_ro("value", &Dim::value)
      .def_ro("multiplier", &Dim::multiplier)
      .def_ro("symbol", &Dim::symbol, "Index in Graph.symbols.")
      .def("__eq__", [](const Dim& left, const Dim& right) { return left == right; })
      .def("__repr__", [](const Dim& dim) { return "Dim(" + graph::dim_text(dim, {}) + ")"; });
  nb::class_<TensorRef>(module, "TensorRef", "An argument that is a tensor: Graph.values[id].")
      .def_ro("id", &TensorRef::id)
      .def("__repr__", [](TensorRef ref) { return "%" + std::to_string(ref.id); });
  nb::class_<graph::Symbol>(module, "Symbol", "A size that is chosen at each call, from min to max.")
      .def_ro("name", &graph::Symbol::name)
      .def_ro("min", &graph::Symbol::min)
      .def_ro("max", &graph::Symbol::max);
  nb::class_<graph::State>(module, "State", "A value that outlives a call.")
      .def_ro("name", &graph::State::name)
      .def_ro("input", &graph::State::input)
      .def_ro("output", &graph::State::output);
  nb::class_<Value>(module, "Value")
      .def_ro("name", &Value::name)
      .def_prop_ro("dtype", [](const Value& value) { return value.type.dtype; })
      .def_prop_ro(
          "shape", [](const Value& value) { return ToPython{}(value.type.shape); }, "A list of int and Dim.")
      .def_ro("constant", &Value::constant, "Index of the constant it is, or -1.");
  nb::class_<Node>(module, "Node")
      .def_ro("op", &Node::op)
      .def_ro("name", &Node::name)
      .def_prop_ro("arguments", &arguments_of, "In the order of the operator's schema.")
      .def_ro("results", &Node::results);
}

// The bytes of a constant, without a copy; the array keeps them.
nb::ndarray<uint8_t, nb::numpy, nb::ro> constant_bytes(const Graph& graph, size_t index) {
  if (index >= graph.constants.size()) {
    throw StatusError(invalid_argument("index: expected a constant below " + std::to_string(graph.constants.size()) +
                                       ", got " + std::to_string(index)));
  }
  const graph::Constant& constant = graph.constants[index];
  auto* owner = new std::shared_ptr<const Storage>(constant.storage);
  const nb::capsule keep(owner, [](void* held) noexcept { delete static_cast<std::shared_ptr<const Storage>*>(held); });
  const size_t size = static_cast<size_t>(constant.storage->size_bytes() - constant.offset_bytes);
  return {const_cast<std::byte*>(constant.storage->data() + constant.offset_bytes), {size}, keep};
}

}  // namespace

void bind_graph(nb::module_& module) {
  bind_parts(module);
  nb::class_<Graph>(module, "Graph", "The model graph in memory; see docs/graph.md.")
      .def_ro("name", &Graph::name)
      .def_prop_ro("symbols", [](const Graph& graph) { return graph.symbols; })
      .def_prop_ro("values", [](const Graph& graph) { return graph.values; })
      .def_prop_ro("nodes", [](const Graph& graph) { return graph.nodes; })
      .def_prop_ro("inputs", [](const Graph& graph) { return graph.inputs; })
      .def_prop_ro("outputs", [](const Graph& graph) { return graph.outputs; })
      .def_prop_ro("states", [](const Graph& graph) { return graph.states; })
      .def_prop_ro("num_constants", [](const Graph& graph) { return graph.constants.size(); })
      .def("constant_bytes", &constant_bytes, "index"_a)
      .def(
          "verify", [](const Graph& graph) { check(graph::verify(graph)); }, "ValueError if the graph is not sound.")
      .def(
          "limit_symbol",
          [](Graph& graph, const std::string& name, int64_t min, std::optional<int64_t> max) {
            for (graph::Symbol& symbol : graph.symbols) {
              if (symbol.name != name) continue;
              symbol.min = min;
              symbol.max = max.value_or(INT64_MAX);
            }
          },
          "name"_a, "min"_a, "max"_a = nb::none(), "Sets the range of the symbol of this name, if there is one.")
      .def("to_text", &graph::to_text)
      .def("__str__", &graph::to_text);
  module.def(
      "operators",
      [] {
        nb::dict result;
        for (const graph::OperatorSchema& schema : graph::schemas()) {
          nb::list arguments;
          for (const graph::ArgumentSchema& argument : schema.arguments) {
            arguments.append(nb::make_tuple(std::string(argument.name), graph::kind_text(argument)));
          }
          result[std::string(schema.name).c_str()] = nb::make_tuple(arguments, schema.results.size());
        }
        return result;
      },
      "Name of each operator with a schema -> ([(argument, kind)], number of results).");
}

}  // namespace qx::python
