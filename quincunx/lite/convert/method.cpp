#include "quincunx/lite/convert/method.h"

#include <utility>

#include "quincunx/lite/convert/coverage.h"
#include "quincunx/lite/convert/edit.h"
#include "quincunx/lite/convert/no_ops.h"
#include "quincunx/lite/plan/constants.h"

namespace qx::lite {
namespace {

using graph::Dim;
using graph::Graph;
using graph::TensorType;

// A larger result would make the file grow more than its computation costs at each load.
constexpr int64_t kMaxFoldedBytes = 1 << 20;

const TensorType& type_of(const Graph& graph, graph::ValueId id) { return graph.values[static_cast<size_t>(id)].type; }

bool is_symbol(const Dim& dim) { return !dim.is_known() && dim == Dim{0, 1, dim.symbol}; }

}  // namespace

void simplify(Graph& graph) {
  bypass_no_ops(graph);
  remove_dead_code(graph);
}

Status finish_method(Graph& graph) {
  simplify(graph);
  QX_RETURN_IF_ERROR(check_operators(graph));
  const Result<std::vector<TensorView>> constants = fold_constants(graph, kMaxFoldedBytes);
  QX_RETURN_IF_ERROR(constants.status());
  remove_dead_code(graph);
  return graph::verify(graph);
}

Result<Graph> make_method(Graph graph, const std::string& name) {
  if (name.empty()) return invalid_argument("name is empty, expected the name of a method");
  graph.name = name;
  QX_RETURN_IF_ERROR(finish_method(graph));
  return graph;
}

Result<Graph> make_encoder(Graph graph, int64_t max_batch, int64_t max_length) {
  if (max_batch < 1 || max_length < 1) {
    return invalid_argument("max_batch and max_length are " + std::to_string(max_batch) + " and " +
                            std::to_string(max_length) + ", expected at least 1");
  }
  if (graph.inputs.size() != 2 || graph.outputs.size() != 1) {
    return invalid_argument("convert: the encoder has " + std::to_string(graph.inputs.size()) + " inputs and " +
                            std::to_string(graph.outputs.size()) + " outputs, expected tokens, mask and one output");
  }
  const TensorType tokens = type_of(graph, graph.inputs[0]);
  const bool dynamic = tokens.shape.size() == 2 && is_symbol(tokens.shape[0]) && is_symbol(tokens.shape[1]);
  if (!dynamic || tokens.dtype != DType::kInt64 || !(type_of(graph, graph.inputs[1]) == tokens)) {
    return invalid_argument(
        "convert: the encoder's inputs are not two int64[batch, length] with sizes that may vary and are the same");
  }
  // torch.export takes a size of 1 for a constant, so its ranges begin at 2; nothing in an encoder depends on that.
  graph.symbols[static_cast<size_t>(tokens.shape[0].symbol)] = {"batch", 1, max_batch};
  graph.symbols[static_cast<size_t>(tokens.shape[1].symbol)] = {"length", 1, max_length};
  graph.values[static_cast<size_t>(graph.inputs[0])].name = "tokens";
  graph.values[static_cast<size_t>(graph.inputs[1])].name = "mask";
  graph.values[static_cast<size_t>(graph.outputs[0])].name = "embedding";
  return make_method(std::move(graph), "encode");
}

}  // namespace qx::lite
