#include "quincunx/python/fx_import.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "quincunx/python/errors.h"
#include "quincunx/python/fx_arguments.h"
#include "quincunx/python/fx_constants.h"
#include "quincunx/python/fx_types.h"

namespace nb = nanobind;

namespace qx::python {
namespace {

using graph::Graph;
using graph::ValueId;

constexpr std::string_view kOpaque = "fx.opaque";
// Checks of what a graph's types say already.
constexpr std::array<std::string_view, 4> kGuards = {"aten._assert_tensor_metadata.default",
                                                     "aten._assert_scalar.default", "aten.sym_constrain_range.default",
                                                     "aten.sym_constrain_range_for_size.default"};
// Operators whose number is a size of their tensor. Others with a number for a result read the tensor's elements.
constexpr std::array<std::string_view, 4> kSizeOperators = {"aten.sym_size.int", "aten.sym_numel.default",
                                                            "aten.sym_stride.int", "aten.sym_storage_offset.default"};

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::string text_of(nb::handle value) { return nb::cast<std::string>(nb::str(value)); }

bool is_sequence(nb::handle value) { return nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value); }

class Importer {
 public:
  Importer(nb::handle fx_graph, const FxOptions& options)
      : fx_graph_(nb::borrow<nb::object>(fx_graph)),
        options_(options),
        types_(*graph_),
        constants_(*graph_),
        arguments_(types_, [this](nb::handle node) -> const FxMeaning& { return meaning(node); }) {
    graph_->name = options.name;
    getitem_ = nb::module_::import_("operator").attr("getitem");
    overload_class_ = nb::module_::import_("torch._ops").attr("OpOverload");
    fake_class_ = nb::module_::import_("torch._subclasses").attr("FakeTensor");
  }

  ImportedGraph run() {
    // As a list: torch's iterator starts again when it is asked once more after its end, as nanobind 3.1 does.
    const nb::object nodes = fx_graph_.attr("nodes");
    for (const nb::handle node : nb::list(nodes)) {
      const auto name = nb::cast<std::string>(node.attr("name"));
      try {
        import_node(node, name);
      } catch (const StatusError& error) {
        const auto target = text_of(node.attr("target"));
        const std::string where = "node \"" + name + "\"" + (target == name ? "" : " (" + target + ")");
        throw StatusError(Status(error.status().code(), where + ": " + error.status().message()));
      }
    }
    check(graph::verify(*graph_));
    result_.graph = graph_;
    result_.symbol_expressions = types_.expressions();
    return std::move(result_);
  }

 private:
  const FxMeaning& meaning(nb::handle node) const {
    const auto found = meanings_.find(node.ptr());
    if (found != meanings_.end()) return found->second;
    const auto name = nb::cast<std::string>(node.attr("name"));
    throw StatusError(invalid_argument("uses \"" + name + "\", which no node before it gives"));
  }

  void import_node(nb::handle node, const std::string& name) {
    const auto op = nb::cast<std::string>(node.attr("op"));
    FxMeaning& meaning = meanings_[node.ptr()];
    if (op == "placeholder") {
      meaning = placeholder(node, name);
    } else if (op == "get_attr") {
      meaning = attribute(node, name);
    } else if (op == "output") {
      output(node);
    } else if (op == "call_function") {
      meaning = call(node, name);
    } else {
      throw StatusError(
          unimplemented("expected a graph of call_function nodes, got " + op + "; export or compile the module first"));
    }
  }

  ValueId add_value(const std::string& name, graph::TensorType type, nb::handle source) {
    graph_->values.push_back({.name = name, .type = std::move(type), .constant = -1});
    result_.value_sources.push_back(nb::borrow<nb::object>(source));
    return static_cast<ValueId>(graph_->values.size()) - 1;
  }

  FxMeaning constant(nb::handle node, const std::string& name, nb::handle tensor) {
    const ValueId id = add_value(name, types_.tensor_type(tensor), node);
    graph_->values.back().constant = constants_.add(tensor);
    return {.kind = FxMeaning::kValue, .value = id, .elements = {}, .number = {}};
  }

  nb::object fake_value(nb::handle node) const {
    const nb::dict meta = nb::cast<nb::dict>(node.attr("meta"));
    if (!meta.contains("val")) {
      throw StatusError(
          invalid_argument("expected meta[\"val\"], which torch.export and AOTAutograd record; got none"));
    }
    return meta["val"];
  }

  FxMeaning placeholder(nb::handle node, const std::string& name) {
    const int64_t position = num_placeholders_++;
    if (options_.lifted.contains(name.c_str())) return constant(node, name, options_.lifted[name.c_str()]);
    const nb::object value = fake_value(node);
    if (types_.is_tensor(value)) {
      const ValueId id = add_value(name, types_.tensor_type(value), node);
      graph_->inputs.push_back(id);
      result_.input_positions.push_back(position);
      return {.kind = FxMeaning::kValue, .value = id, .elements = {}, .number = {}};
    }
    return number(value).value_or(FxMeaning{});
  }

  // A number's meaning. Its symbol is known to the graph from here on.
  std::optional<FxMeaning> number(nb::handle value) {
    if (types_.is_int(value)) {
      types_.dim(value);
    } else if (!nb::isinstance<nb::float_>(value) && !nb::isinstance<nb::bool_>(value)) {
      return types_.is_other_symbolic(value) ? std::optional<FxMeaning>(FxMeaning{}) : std::nullopt;
    }
    return FxMeaning{
        .kind = FxMeaning::kNumber, .value = graph::kNoValue, .elements = {}, .number = nb::borrow<nb::object>(value)};
  }

  FxMeaning attribute(nb::handle node, const std::string& name) {
    nb::object found = nb::borrow<nb::object>(options_.owner);
    for (const nb::handle part : nb::object(node.attr("target")).attr("split")(".")) {
      if (found.is_none() || !nb::hasattr(found, part)) {
        throw StatusError(invalid_argument("expected an attribute of the graph's module, found none"));
      }
      found = found.attr(part);
    }
    if (!types_.is_tensor(found)) return {};  // a submodule that a higher-order operator calls
    if (!nb::isinstance(found, fake_class_)) return constant(node, name, found);
    if (!options_.opaque) throw StatusError(invalid_argument("expected a tensor with data, got a fake one"));
    return opaque(node, name, found);
  }

  FxMeaning call(nb::handle node, const std::string& name) {
    const nb::object target = node.attr("target");
    if (target.is(getitem_)) {
      std::optional<FxMeaning> element = item(node, name);
      if (element) return *std::move(element);
    }
    const auto target_name = text_of(target);
    if (contains(kGuards, target_name)) return {};
    const nb::object value = fake_value(node);
    if (!reads_tensors(node) || contains(kSizeOperators, target_name)) {
      if (std::optional<FxMeaning> folded = number(value)) return *std::move(folded);
    }
    const bool overload = nb::isinstance(target, overload_class_);
    try {
      if (!overload) throw StatusError(unimplemented("expected a call of a torch operator"));
      if (number(value))
        throw StatusError(unimplemented("expected tensors, got a number that tensors' elements decide"));
      std::vector<graph::Argument> arguments = arguments_.convert(node);
      return add_node(node, {.op = target_name, .name = name, .arguments = std::move(arguments), .results = {}}, value);
    } catch (const StatusError&) {
      if (!options_.opaque) throw;
      return opaque(node, name, value);
    }
  }

  bool reads_tensors(nb::handle node) const {
    for (const nb::handle input : node.attr("all_input_nodes")) {
      const FxMeaning& used = meaning(input);
      if (used.kind == FxMeaning::kValue || used.kind == FxMeaning::kList) return true;
    }
    return false;
  }

  FxMeaning opaque(nb::handle node, const std::string& name, nb::handle value) {
    std::vector<graph::TensorRef> tensors;
    for (const nb::handle input : node.attr("all_input_nodes")) collect(meaning(input), tensors);
    const auto target = text_of(node.attr("target"));
    return add_node(node, {.op = std::string(kOpaque), .name = name, .arguments = {target, tensors}, .results = {}},
                    value);
  }

  void collect(const FxMeaning& used, std::vector<graph::TensorRef>& tensors) const {
    if (used.kind == FxMeaning::kValue) tensors.push_back({used.value});
    for (const FxMeaning& element : used.elements) collect(element, tensors);
  }

  // results[i] of an operator with several results; nothing if the node is another kind of item.
  std::optional<FxMeaning> item(nb::handle node, const std::string& name) {
    const nb::object source = node.attr("args")[0];
    const nb::object index = node.attr("args")[1];
    if (!arguments_.is_node(source) || !nb::isinstance<nb::int_>(index)) return std::nullopt;
    const FxMeaning& list = meaning(source);
    if (list.kind != FxMeaning::kList) return std::nullopt;
    const auto size = static_cast<int64_t>(list.elements.size());
    const auto position = nb::cast<int64_t>(index);
    if (position >= size || position < -size) {
      throw StatusError(invalid_argument("expected one of " + std::to_string(size) + " results, got number " +
                                         std::to_string(position)));
    }
    const FxMeaning& element = list.elements[static_cast<size_t>(position < 0 ? position + size : position)];
    if (element.kind == FxMeaning::kValue) {
      const auto id = static_cast<size_t>(element.value);
      if (result_.value_sources[id].is_none()) {
        result_.value_sources[id] = nb::borrow<nb::object>(node);
        graph_->values[id].name = name;
      }
    }
    return element;
  }

  FxMeaning add_node(nb::handle node, graph::Node added, nb::handle value) {
    FxMeaning result;
    if (types_.is_tensor(value)) {
      const ValueId id = add_value(added.name, types_.tensor_type(value), node);
      added.results.push_back(id);
      result = {.kind = FxMeaning::kValue, .value = id, .elements = {}, .number = {}};
    } else if (is_sequence(value)) {
      result.kind = FxMeaning::kList;
      for (const nb::handle element : value) result.elements.push_back(result_element(element, added));
    } else if (!value.is_none() && !number(value)) {
      throw StatusError(unimplemented("expected tensors for results, got " + nb::cast<std::string>(nb::repr(value))));
    }
    graph_->nodes.push_back(std::move(added));
    result_.node_sources.push_back(nb::borrow<nb::object>(node));
    return result;
  }

  FxMeaning result_element(nb::handle element, graph::Node& node) {
    if (const std::optional<FxMeaning> folded = number(element)) return *folded;
    // A result that was not asked for (a mask of gradients) keeps its place as an empty tensor.
    graph::TensorType type{.dtype = DType::kFloat32, .shape = {graph::Dim{.value = 0}}};
    if (types_.is_tensor(element)) {
      type = types_.tensor_type(element);
    } else if (!element.is_none()) {
      throw StatusError(
          unimplemented("expected a tensor among the results, got " + nb::cast<std::string>(nb::repr(element))));
    }
    const std::string name = node.name + "." + std::to_string(node.results.size());
    node.results.push_back(add_value(name, std::move(type), nb::none()));
    return {.kind = FxMeaning::kValue, .value = node.results.back(), .elements = {}, .number = {}};
  }

  void output(nb::handle node) { leaf(node.attr("args")[0]); }

  void leaf(nb::handle value) {
    if (is_sequence(value)) {
      for (const nb::handle element : value) leaf(element);
      return;
    }
    if (nb::isinstance<nb::dict>(value)) {
      for (const nb::handle element : value.attr("values")()) leaf(element);
      return;
    }
    const int64_t position = num_leaves_++;
    const FxMeaning nothing;
    const FxMeaning& given = arguments_.is_node(value) ? meaning(value) : nothing;
    const bool in_states = static_cast<size_t>(position) < nb::len(options_.states);
    const nb::object state = in_states ? nb::object(options_.states[static_cast<size_t>(position)]) : nb::none();
    if (!state.is_none()) {
      add_state(nb::cast<std::string>(state[0]), nb::cast<std::string>(state[1]), given);
    } else if (given.kind == FxMeaning::kValue) {
      graph_->outputs.push_back(given.value);
      result_.output_positions.push_back(position);
    } else if (given.kind == FxMeaning::kList) {
      throw StatusError(unimplemented("expected tensors, got a list of results as one output"));
    }
  }

  void add_state(const std::string& name, const std::string& placeholder, const FxMeaning& given) {
    for (size_t id = 0; id < graph_->values.size(); ++id) {
      if (graph_->values[id].constant < 0 || graph_->values[id].name != placeholder) continue;
      if (given.kind != FxMeaning::kValue) break;
      graph_->states.push_back({.name = name, .input = static_cast<ValueId>(id), .output = given.value});
      return;
    }
    throw StatusError(invalid_argument("state \"" + name + "\": expected a tensor that replaces \"" + placeholder +
                                       "\", one of the lifted tensors"));
  }

  const nb::object fx_graph_;
  const FxOptions& options_;
  const std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  FxTypes types_;
  FxConstants constants_;
  FxArguments arguments_;
  nb::object getitem_;
  nb::object overload_class_;
  nb::object fake_class_;
  std::unordered_map<PyObject*, FxMeaning> meanings_;
  int64_t num_placeholders_ = 0;
  int64_t num_leaves_ = 0;
  ImportedGraph result_;
};

}  // namespace

ImportedGraph import_fx(nb::handle fx_graph, const FxOptions& options) { return Importer(fx_graph, options).run(); }

}  // namespace qx::python
