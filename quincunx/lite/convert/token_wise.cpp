#include "quincunx/lite/convert/token_wise.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "quincunx/lite/convert/edit.h"
#include "quincunx/lite/ops/operator.h"

namespace qx::lite {
namespace {

using graph::Argument;
using graph::Dim;
using graph::Graph;
using graph::Node;
using graph::TensorRef;
using graph::TensorType;

// Rows are independent whatever the arguments are, as long as the results have the token dim.
constexpr std::array<std::string_view, 26> kIndependent = {"aten._assert_tensor_metadata.default",
                                                           "aten._to_copy.default",
                                                           "aten._unsafe_view.default",
                                                           "aten.alias.default",
                                                           "aten.clone.default",
                                                           "aten.contiguous.default",
                                                           "aten.detach.default",
                                                           "aten.embedding.default",
                                                           "aten.expand.default",
                                                           "aten.expand_as.default",
                                                           "aten.full_like.default",
                                                           "aten.ones_like.default",
                                                           "aten.outer.default",
                                                           "aten.permute.default",
                                                           "aten.repeat.default",
                                                           "aten.reshape.default",
                                                           "aten.select.int",
                                                           "aten.squeeze.dim",
                                                           "aten.squeeze.dims",
                                                           "aten.to.device",
                                                           "aten.to.dtype",
                                                           "aten.to.dtype_layout",
                                                           "aten.transpose.int",
                                                           "aten.unsqueeze.default",
                                                           "aten.view.default",
                                                           "aten.zeros_like.default"};

// These work along the dims that one of their arguments names.
struct AlongDims {
  std::string_view op;
  size_t argument;
};
constexpr std::array<AlongDims, 20> kAlongDims = {{
    {"aten._log_softmax.default", 1}, {"aten._softmax.default", 1},
    {"aten.amax.default", 1},         {"aten.amin.default", 1},
    {"aten.argmax.default", 1},       {"aten.cat.default", 1},
    {"aten.chunk.default", 2},        {"aten.cumsum.default", 1},
    {"aten.flip.default", 1},         {"aten.glu.default", 1},
    {"aten.log_softmax.int", 1},      {"aten.mean.dim", 1},
    {"aten.slice.Tensor", 1},         {"aten.softmax.int", 1},
    {"aten.split.Tensor", 2},         {"aten.split_with_sizes.default", 2},
    {"aten.sum.dim_IntList", 1},      {"aten.topk.default", 2},
    {"aten.unbind.int", 1},           {"aten.var.correction", 1},
}};

// The last dims of operand 0, as many as argument 1 has entries, are normalised together.
constexpr std::array<std::string_view, 2> kNormalizations = {"aten.layer_norm.default", "aten.rms_norm.default"};
// Operand 0 times a matrix that has no tokens.
constexpr std::array<std::string_view, 5> kProducts = {"aten.linear.default", "aten.matmul.default", "aten.mm.default",
                                                       "aten.bmm.default", "aten.addmm.default"};

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const TensorType& type_of(const Graph& graph, graph::ValueId id) { return graph.values[static_cast<size_t>(id)].type; }

Status refuse(const Node& node, const std::string& what) {
  return invalid_argument("node '" + node.name + "' (" + node.op + ") " + what +
                          "; a cached decoder may mix tokens in causal scaled_dot_product_attention only");
}

// Tokens in two dims (a hand-written attention), or in a dim that is not simply their number.
Status check_type(const Node& node, const TensorType& type, int32_t symbol) {
  int count = 0;
  for (const Dim& dim : type.shape) {
    if (dim.symbol != symbol) continue;
    ++count;
    if (dim.multiplier != 1 || dim.value != 0) return refuse(node, "joins the tokens with another dim");
  }
  return count <= 1 ? ok_status() : refuse(node, "compares the tokens with each other");
}

bool names_dim(const Argument& argument, int dim, int rank) {
  const auto is_it = [&](const Dim& given) {
    return given.is_known() && (given.value < 0 ? given.value + rank : given.value) == dim;
  };
  if (const auto* one = std::get_if<Dim>(&argument)) return is_it(*one);
  if (const auto* list = std::get_if<std::vector<Dim>>(&argument)) {
    return list->empty() || std::any_of(list->begin(), list->end(), is_it);
  }
  return true;  // None: all dims
}

Status check_along_dims(const Graph& graph, const Node& node, size_t argument, int32_t symbol) {
  Status status = ok_status();
  for_each_operand(node, [&](graph::ValueId id) {
    const TensorType& type = type_of(graph, id);
    const int dim = token_dim(type, symbol);
    if (dim >= 0 && names_dim(node.arguments[argument], dim, static_cast<int>(type.shape.size()))) {
      status = refuse(node, "works along the tokens");
    }
  });
  return status;
}

Status check_normalization(const Graph& graph, const Node& node, int32_t symbol) {
  const TensorType& type = type_of(graph, std::get<TensorRef>(node.arguments[0]).id);
  const auto* shape = std::get_if<std::vector<Dim>>(&node.arguments[1]);
  const auto first = static_cast<int>(type.shape.size()) - static_cast<int>(shape == nullptr ? 0 : shape->size());
  return token_dim(type, symbol) < first ? ok_status() : refuse(node, "normalises over the tokens");
}

Status check_product(const Graph& graph, const Node& node, int32_t symbol) {
  const size_t matrix = node.op == "aten.addmm.default" ? 2 : 1;
  const TensorType& right = type_of(graph, std::get<TensorRef>(node.arguments[matrix]).id);
  return token_dim(right, symbol) < 0 ? ok_status() : refuse(node, "sums over the tokens");
}

bool is_elementwise(const std::string& op) {
  const Operator* entry = find_operator(op);
  return entry != nullptr && entry->elementwise;
}

}  // namespace

int token_dim(const TensorType& type, int32_t symbol) {
  for (size_t dim = 0; dim < type.shape.size(); ++dim) {
    if (type.shape[dim].symbol == symbol) return static_cast<int>(dim);
  }
  return -1;
}

Status check_token_wise(const Graph& graph, const Node& node, int32_t symbol) {
  for (const graph::ValueId id : node.results) {
    if (id == graph::kNoValue) continue;
    QX_RETURN_IF_ERROR(check_type(node, type_of(graph, id), symbol));
    if (token_dim(type_of(graph, id), symbol) < 0) return refuse(node, "takes some of the tokens, or joins all");
  }
  const auto along =
      std::find_if(kAlongDims.begin(), kAlongDims.end(), [&](const AlongDims& entry) { return entry.op == node.op; });
  if (along != kAlongDims.end()) return check_along_dims(graph, node, along->argument, symbol);
  if (contains(kNormalizations, node.op)) return check_normalization(graph, node, symbol);
  if (contains(kProducts, node.op)) return check_product(graph, node, symbol);
  if (contains(kIndependent, node.op) || is_elementwise(node.op)) return ok_status();
  return refuse(node, "is not known to treat each token by itself");
}

}  // namespace qx::lite
