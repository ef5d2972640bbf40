#include "quincunx/graph/tile_node.h"

#include <string>
#include <variant>
#include <vector>

#include "quincunx/graph/text.h"
#include "quincunx/tile/program.h"

namespace qx::graph {
namespace {

Status check_tensors(const Graph& graph, const std::string& what, const std::vector<tile::Tensor>& tensors,
                     const std::vector<ValueId>& values) {
  if (tensors.size() != values.size()) {
    return invalid_argument(what + ": expected " + std::to_string(tensors.size()) + " as in the program, got " +
                            std::to_string(values.size()));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorType& type = graph.values[static_cast<size_t>(values[i])].type;
    if (type.dtype == tensors[i].dtype && type.shape.size() == tensors[i].axes.size()) continue;
    return invalid_argument(what + "[" + std::to_string(i) + "]: expected " +
                            std::string(dtype_name(tensors[i].dtype)) + " of " +
                            std::to_string(tensors[i].axes.size()) + " dims, got " + type_text(type, graph.symbols));
  }
  return ok_status();
}

}  // namespace

Status check_tile_node(const Graph& graph, const Node& node) {
  QX_ASSIGN_OR_RETURN(const tile::Program program, tile::parse(std::get<std::string>(node.arguments[0])));
  std::vector<ValueId> inputs;
  for (const TensorRef ref : std::get<std::vector<TensorRef>>(node.arguments[1])) inputs.push_back(ref.id);
  QX_RETURN_IF_ERROR(check_tensors(graph, "inputs", program.inputs, inputs));
  return check_tensors(graph, "results", program.outputs, node.results);
}

}  // namespace qx::graph
