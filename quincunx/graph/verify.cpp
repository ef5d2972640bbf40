#include <string>
#include <vector>

#include "quincunx/graph/graph.h"
#include "quincunx/graph/schema.h"
#include "quincunx/graph/text.h"
#include "quincunx/graph/tile_node.h"

namespace qx::graph {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), defined_(graph.values.size(), false) {}

  Status run() {
    QX_RETURN_IF_ERROR(check_symbols());
    QX_RETURN_IF_ERROR(check_values());
    for (const ValueId id : graph_.inputs) QX_RETURN_IF_ERROR(define(id, "inputs"));
    QX_RETURN_IF_ERROR(define_states());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) QX_RETURN_IF_ERROR(check_node(i));
    for (const ValueId id : graph_.outputs) QX_RETURN_IF_ERROR(use(id, "outputs"));
    QX_RETURN_IF_ERROR(check_state_outputs());
    for (size_t id = 0; id < defined_.size(); ++id) {
      if (!defined_[id]) return error(value_text(static_cast<ValueId>(id)) + " is never produced");
    }
    return ok_status();
  }

 private:
  Status error(const std::string& message) const {
    return invalid_argument("graph \"" + graph_.name + "\": " + message);
  }

  std::string value_text(ValueId id) const {
    return "value %" + std::to_string(id) + " (\"" + graph_.values[static_cast<size_t>(id)].name + "\")";
  }

  bool in_range(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < graph_.values.size(); }

  Status check_symbols() const {
    for (size_t i = 0; i < graph_.symbols.size(); ++i) {
      const Symbol& symbol = graph_.symbols[i];
      if (symbol.min > symbol.max) {
        return error("symbol " + std::to_string(i) + " (\"" + symbol.name + "\"): expected min <= max, got " +
                     std::to_string(symbol.min) + " and " + std::to_string(symbol.max));
      }
    }
    return ok_status();
  }

  Status check_dim(const Dim& dim, const std::string& where) const {
    if (dim.is_known()) return ok_status();
    if (dim.symbol < 0 || static_cast<size_t>(dim.symbol) >= graph_.symbols.size()) {
      return error(where + ": expected a symbol below " + std::to_string(graph_.symbols.size()) + ", got " +
                   std::to_string(dim.symbol));
    }
    if (dim.multiplier == 0) return error(where + ": expected a multiplier other than 0 of a symbol");
    return ok_status();
  }

  Status check_values() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      const std::string where = value_text(static_cast<ValueId>(i));
      for (const Dim& dim : value.type.shape) {
        QX_RETURN_IF_ERROR(check_dim(dim, where));
        if (dim.is_known() && dim.value < 0) {
          return error(where + ": expected sizes of at least 0, got " + std::to_string(dim.value));
        }
      }
      if (value.constant < 0) continue;
      QX_RETURN_IF_ERROR(check_constant(value, where));
      defined_[i] = true;
    }
    return ok_status();
  }

  Status check_constant(const Value& value, const std::string& where) const {
    if (static_cast<size_t>(value.constant) >= graph_.constants.size()) {
      return error(where + ": expected a constant below " + std::to_string(graph_.constants.size()) + ", got " +
                   std::to_string(value.constant));
    }
    const Constant& constant = graph_.constants[static_cast<size_t>(value.constant)];
    if (constant.storage == nullptr) return error(where + ": its constant has no storage");
    int64_t size = dtype_size_bytes(value.type.dtype);
    bool empty = false;
    for (const Dim& dim : value.type.shape) {
      if (!dim.is_known()) return error(where + ": expected a constant of known sizes");
      empty |= dim.value == 0;
      if (!empty && __builtin_mul_overflow(size, dim.value, &size)) return error(where + ": its size overflows");
    }
    if (empty) size = 0;
    const int64_t available = constant.storage->size_bytes();
    if (constant.offset_bytes < 0 || constant.offset_bytes > available || size > available - constant.offset_bytes) {
      return error(where + ": needs " + std::to_string(size) + " bytes at offset " +
                   std::to_string(constant.offset_bytes) + ", its storage has " + std::to_string(available));
    }
    return ok_status();
  }

  Status define(ValueId id, const std::string& where) {
    if (!in_range(id)) {
      return error(where + ": expected values below " + std::to_string(graph_.values.size()) + ", got " +
                   std::to_string(id));
    }
    if (defined_[static_cast<size_t>(id)]) return error(where + ": " + value_text(id) + " is produced twice");
    defined_[static_cast<size_t>(id)] = true;
    return ok_status();
  }

  Status use(ValueId id, const std::string& where) const {
    if (!in_range(id)) {
      return error(where + ": expected values below " + std::to_string(graph_.values.size()) + ", got " +
                   std::to_string(id));
    }
    if (!defined_[static_cast<size_t>(id)]) return error(where + ": " + value_text(id) + " is used before it exists");
    return ok_status();
  }

  // The initial contents of a state are a constant's, or zeros.
  Status define_states() {
    std::vector<bool> taken(graph_.values.size(), false);
    for (const State& state : graph_.states) {
      const std::string where = "state \"" + state.name + "\"";
      if (!in_range(state.input)) return error(where + ": has no input");
      if (taken[static_cast<size_t>(state.input)]) return error(where + ": shares its input with another state");
      taken[static_cast<size_t>(state.input)] = true;
      if (graph_.values[static_cast<size_t>(state.input)].constant >= 0) continue;
      QX_RETURN_IF_ERROR(define(state.input, where));
    }
    return ok_status();
  }

  Status check_state_outputs() const {
    for (const State& state : graph_.states) {
      const std::string where = "state \"" + state.name + "\"";
      QX_RETURN_IF_ERROR(use(state.output, where));
      const TensorType& before = graph_.values[static_cast<size_t>(state.input)].type;
      const TensorType& after = graph_.values[static_cast<size_t>(state.output)].type;
      if (before != after) {
        return error(where + ": expected output of type " + type_text(before, graph_.symbols) + ", got " +
                     type_text(after, graph_.symbols));
      }
    }
    return ok_status();
  }

  Status check_node(size_t index) {
    const Node& node = graph_.nodes[index];
    const std::string where = "node " + std::to_string(index) + " (\"" + node.name + "\", " + node.op + ")";
    if (node.op.empty()) return error(where + ": expected the name of an operator");
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      QX_RETURN_IF_ERROR(check_argument(node.arguments[i], where + ", argument " + std::to_string(i)));
    }
    for (const ValueId id : node.results) QX_RETURN_IF_ERROR(define(id, where));
    const OperatorSchema* schema = find_schema(node.op);
    return schema == nullptr ? ok_status() : check_schema(node, *schema, where);
  }

  Status check_argument(const Argument& argument, const std::string& where) const {
    if (const auto* ref = std::get_if<TensorRef>(&argument)) return use(ref->id, where);
    if (const auto* dim = std::get_if<Dim>(&argument)) return check_dim(*dim, where);
    if (const auto* dims = std::get_if<std::vector<Dim>>(&argument)) {
      for (const Dim& dim : *dims) QX_RETURN_IF_ERROR(check_dim(dim, where));
    }
    if (const auto* refs = std::get_if<std::vector<TensorRef>>(&argument)) {
      for (const TensorRef ref : *refs) {
        if (ref.id != kNoValue) QX_RETURN_IF_ERROR(use(ref.id, where));
      }
    }
    return ok_status();
  }

  Status check_schema(const Node& node, const OperatorSchema& schema, const std::string& where) const {
    if (node.arguments.size() != schema.arguments.size()) {
      return error(where + ": expected " + std::to_string(schema.arguments.size()) + " arguments, got " +
                   std::to_string(node.arguments.size()));
    }
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const ArgumentSchema& expected = schema.arguments[i];
      if (accepts(expected, node.arguments[i])) continue;
      return error(where + ", argument \"" + std::string(expected.name) + "\": expected " + kind_text(expected) +
                   ", got " + argument_text(node.arguments[i], graph_.symbols));
    }
    const bool any_number = schema.results.size() == 1 && schema.results[0] == ArgumentKind::kTensorList;
    if (!any_number && node.results.size() != schema.results.size()) {
      return error(where + ": expected " + std::to_string(schema.results.size()) + " results, got " +
                   std::to_string(node.results.size()));
    }
    if (node.op != kTileOperator) return ok_status();
    const Status status = check_tile_node(graph_, node);
    return status.ok() ? status : error(where + ": " + status.message());
  }

  const Graph& graph_;
  std::vector<bool> defined_;
};

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace qx::graph
