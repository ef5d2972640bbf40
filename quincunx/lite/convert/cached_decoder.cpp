#include "quincunx/lite/convert/cached_decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "quincunx/lite/convert/edit.h"
#include "quincunx/lite/convert/last_token.h"
#include "quincunx/lite/convert/method.h"
#include "quincunx/lite/convert/token_wise.h"

namespace qx::lite {
namespace {

using graph::Argument;
using graph::Dim;
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::TensorRef;
using graph::TensorType;
using graph::ValueId;

constexpr char kAttention[] = "aten.scaled_dot_product_attention.default";
constexpr char kAnyArange[] = "aten.arange.";
constexpr char kArange[] = "aten.arange.start_step";

// Arguments of scaled_dot_product_attention.
enum AttentionArgument : size_t { kQuery, kKey, kValue, kMask, kDropout, kCausal, kScale };

bool is_missing(const Argument& argument) {
  const auto* tensor = std::get_if<TensorRef>(&argument);
  return std::holds_alternative<std::monostate>(argument) || (tensor != nullptr && tensor->id == kNoValue);
}

class Rewriter {
 public:
  Rewriter(Graph graph, int32_t symbol, int64_t max_length)
      : graph_(std::move(graph)), symbol_(symbol), max_length_(max_length) {}

  Result<Graph> run() {
    position_ = add_value(graph_, "position", {DType::kInt64, {}});
    graph_.inputs.push_back(position_);
    for (Node& node : std::exchange(graph_.nodes, {})) QX_RETURN_IF_ERROR(rewrite(std::move(node)));
    if (graph_.states.empty()) {
      return invalid_argument(std::string("convert: the model has no ") + kAttention + ", expected a decoder");
    }
    return std::move(graph_);
  }

 private:
  const TensorType& type_of(ValueId id) const { return graph_.values[static_cast<size_t>(id)].type; }

  bool has_tokens(const Node& node) const {
    bool found = false;
    for_each_operand(node, [&](ValueId id) { found = found || token_dim(type_of(id), symbol_) >= 0; });
    return found;
  }

  bool makes_tokens(const Node& node) const {
    return std::any_of(node.results.begin(), node.results.end(),
                       [&](ValueId id) { return id != kNoValue && token_dim(type_of(id), symbol_) >= 0; });
  }

  // The same for each token.
  static bool is_uniform(const std::string& op) {
    constexpr std::array<std::string_view, 7> kUniform = {
        "aten.expand.default",    "aten.full.default", "aten.new_full.default", "aten.new_ones.default",
        "aten.new_zeros.default", "aten.ones.default", "aten.zeros.default"};
    return std::find(kUniform.begin(), kUniform.end(), op) != kUniform.end();
  }

  Status rewrite(Node node) {
    if (node.op == kAttention && has_tokens(node)) return cache_attention(std::move(node));
    if (has_tokens(node)) {
      QX_RETURN_IF_ERROR(check_token_wise(graph_, node, symbol_));
    } else if (makes_tokens(node)) {
      if (node.op.starts_with(kAnyArange)) return shift_positions(std::move(node));
      if (node.op == "aten.slice.Tensor") return gather_positions(std::move(node));
      if (!is_uniform(node.op)) {
        return invalid_argument("node '" + node.name + "' (" + node.op +
                                ") gives each token a value of its own in a way that is not known; positions may come "
                                "from arange or from the first rows of a table");
      }
    }
    graph_.nodes.push_back(std::move(node));
    return ok_status();
  }

  ValueId add_node(std::string op, std::vector<Argument> arguments, const std::string& name, TensorType type) {
    const ValueId result = add_value(graph_, name, std::move(type));
    graph_.nodes.push_back({std::move(op), name, std::move(arguments), {result}});
    return result;
  }

  // The position as a tensor of `dtype`.
  ValueId position_as(DType dtype, const std::string& name) {
    if (dtype == DType::kInt64) return position_;
    const std::monostate none;
    return add_node("aten._to_copy.default", {TensorRef{position_}, dtype, none, none, none, false, none},
                    name + ".position", {dtype, {}});
  }

  // arange(L), arange(0, L) or arange(0, L, 1).
  bool counts_from_zero(const Node& node) const {
    const Argument length = Dim{0, 1, symbol_};
    if (node.op == "aten.arange.default") return node.arguments[0] == length;
    const bool begins = node.arguments[0] == Argument(Dim{0}) && node.arguments[1] == length;
    return begins && (node.op == "aten.arange.start" || node.arguments[2] == Argument(Dim{1}));
  }

  // arange(0, L) counts from the first new token.
  Status shift_positions(Node node) {
    if (!counts_from_zero(node)) {
      return invalid_argument("node '" + node.name + "' (" + node.op +
                              ") counts the tokens in a way of its own, expected arange(0, length)");
    }
    const std::string name = node.name;
    const TensorType type = type_of(node.results[0]);
    const ValueId shifted = std::exchange(node.results[0], add_value(graph_, name + ".counted", type));
    const ValueId counted = node.results[0];
    graph_.nodes.push_back(std::move(node));
    const ValueId position = position_as(type.dtype, name);
    graph_.nodes.push_back(
        {"aten.add.Tensor", name + ".shifted", {TensorRef{counted}, TensorRef{position}, Dim{1}}, {shifted}});
    return ok_status();
  }

  // table[:L] becomes table[position:position + L].
  Status gather_positions(Node node) {
    const bool from_start = node.arguments[2] == Argument(Dim{0}) || is_missing(node.arguments[2]);
    const bool every = node.arguments[4] == Argument(Dim{1});
    if (!from_start || !every) {
      return invalid_argument("node '" + node.name + "' (" + node.op +
                              ") takes positions in a way of its own, expected the first ones");
    }
    const Dim length{0, 1, symbol_};
    const std::monostate none;
    const ValueId counted = add_node(kArange, {Dim{0}, length, Dim{1}, DType::kInt64, none, none, none},
                                     node.name + ".rows", {DType::kInt64, {length}});
    const ValueId rows = add_node("aten.add.Tensor", {TensorRef{counted}, TensorRef{position_}, Dim{1}},
                                  node.name + ".shifted", {DType::kInt64, {length}});
    graph_.nodes.push_back({"aten.index_select.default",
                            node.name,
                            {node.arguments[0], node.arguments[1], TensorRef{rows}},
                            std::move(node.results)});
    return ok_status();
  }

  Status check_attention(const Node& node) const {
    const auto fail = [&](const std::string& what) {
      return invalid_argument("node '" + node.name + "' (" + node.op + ") " + what +
                              "; call it with is_causal=True and attn_mask=None (generation has no padding)");
    };
    if (!is_missing(node.arguments[kMask])) return fail("has a mask");
    if (!(node.arguments[kCausal] == Argument(true))) return fail("is not causal");
    if (!(node.arguments[kDropout] == Argument(0.0))) return fail("drops out");
    for (const size_t index : {kQuery, kKey, kValue}) {
      const TensorType& type = type_of(std::get<TensorRef>(node.arguments[index]).id);
      if (type.shape.size() != 4 || token_dim(type, symbol_) != 2 || !type.shape[0].is_known() ||
          type.shape[0].value != 1 || !type.shape[1].is_known() || !type.shape[3].is_known()) {
        return fail("has operands other than [1, heads, length, width]");
      }
    }
    return ok_status();
  }

  ValueId add_cache(const std::string& kind, const Node& node, const Argument& fresh) {
    TensorType type = type_of(std::get<TensorRef>(fresh).id);
    type.shape[2] = Dim{max_length_};
    const std::string name = kind + "." + std::to_string(num_layers_);
    const ValueId before = add_value(graph_, name, type);
    const ValueId after =
        add_node("qx.kv_append", {TensorRef{before}, fresh, TensorRef{position_}}, node.name + "." + kind, type);
    graph_.states.push_back({name, before, after});
    return after;
  }

  Status cache_attention(Node node) {
    QX_RETURN_IF_ERROR(check_attention(node));
    const ValueId keys = add_cache("key", node, node.arguments[kKey]);
    const ValueId values = add_cache("value", node, node.arguments[kValue]);
    const auto width = type_of(std::get<TensorRef>(node.arguments[kQuery]).id).shape[3].value;
    const auto* scale = std::get_if<double>(&node.arguments[kScale]);
    node.op = "qx.attention_cached";
    node.arguments = {node.arguments[kQuery], TensorRef{keys}, TensorRef{values}, TensorRef{position_},
                      scale != nullptr ? *scale : 1.0 / std::sqrt(static_cast<double>(width))};
    graph_.nodes.push_back(std::move(node));
    ++num_layers_;
    return ok_status();
  }

  Graph graph_;
  int32_t symbol_;
  int64_t max_length_;
  int num_layers_ = 0;
  ValueId position_ = kNoValue;
};

Status check_decoder(const Graph& graph, const DecoderOptions& options) {
  if (options.max_length < 2) {
    return invalid_argument("max_length is " + std::to_string(options.max_length) + ", expected at least 2");
  }
  if (!graph.states.empty()) return invalid_argument("convert: the decoder has states already, expected none");
  if (graph.inputs.size() != 1 || graph.outputs.size() != 1) {
    return invalid_argument("convert: the decoder has " + std::to_string(graph.inputs.size()) + " inputs and " +
                            std::to_string(graph.outputs.size()) + " outputs, expected tokens and logits");
  }
  const TensorType& tokens = graph.values[static_cast<size_t>(graph.inputs[0])].type;
  const bool one_text = tokens.shape.size() == 2 && tokens.shape[0] == Dim{1} && !tokens.shape[1].is_known() &&
                        tokens.shape[1] == Dim{0, 1, tokens.shape[1].symbol};
  if (tokens.dtype != DType::kInt64 || !one_text) {
    return invalid_argument(
        "convert: the decoder's tokens are no int64[1, length] with a length that may vary; export it with one text "
        "and dynamic_shapes={1: torch.export.Dim(\"length\", min=2)}");
  }
  const TensorType& logits = graph.values[static_cast<size_t>(graph.outputs[0])].type;
  if (logits.shape.size() != 3 || token_dim(logits, tokens.shape[1].symbol) != 1) {
    return invalid_argument("convert: the decoder's output is no [1, length, vocabulary], as logits are");
  }
  return ok_status();
}

}  // namespace

Result<Graph> make_cached_decoder(Graph graph, const DecoderOptions& options) {
  QX_RETURN_IF_ERROR(check_decoder(graph, options));
  simplify(graph);
  const int32_t symbol = graph.values[static_cast<size_t>(graph.inputs[0])].type.shape[1].symbol;
  QX_ASSIGN_OR_RETURN(Graph cached, Rewriter(std::move(graph), symbol, options.max_length).run());
  keep_last_token(cached, symbol);
  // torch.export takes a length of 1 for a constant, so its range begins at 2; nothing here depends on that.
  cached.symbols[static_cast<size_t>(symbol)] = {"length", 1, options.max_length};
  cached.values[static_cast<size_t>(cached.inputs[0])].name = "tokens";
  cached.values[static_cast<size_t>(cached.outputs[0])].name = "logits";
  QX_RETURN_IF_ERROR(finish_method(cached));
  return cached;
}

Result<std::vector<Graph>> make_decoder_methods(Graph graph, const DecoderOptions& options) {
  QX_ASSIGN_OR_RETURN(Graph prefill, make_cached_decoder(std::move(graph), options));
  prefill.name = "prefill";
  const int32_t symbol = prefill.values[static_cast<size_t>(prefill.inputs[0])].type.shape[1].symbol;
  QX_ASSIGN_OR_RETURN(Graph decode, bind_symbol(prefill, symbol, 1));
  decode.name = "decode";
  QX_RETURN_IF_ERROR(finish_method(decode));
  return std::vector<Graph>{std::move(prefill), std::move(decode)};
}

}  // namespace qx::lite
