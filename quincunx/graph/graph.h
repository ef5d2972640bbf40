// The model graph in memory: what torch.fx, torch.export and ONNX are imported into, what the compiler rewrites, what a
// .qxm file holds and what lite runs. Nodes are in topological order; every value is produced once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "quincunx/base/dtype.h"
#include "quincunx/base/status.h"
#include "quincunx/tensor/storage.h"

namespace qx::graph {

// Index of a value in Graph::values.
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

// A size that is known (symbol == kNoSymbol: value) or affine in one symbol: multiplier * symbol + value.
struct Dim {
  static constexpr int32_t kNoSymbol = -1;

  int64_t value = 0;
  int64_t multiplier = 1;
  int32_t symbol = kNoSymbol;

  bool is_known() const { return symbol == kNoSymbol; }
  bool operator==(const Dim&) const = default;
};

// A size that is chosen at each call, the same wherever it appears, or a number that follows from such sizes, whose
// name is then its expression: "s0//2". Both bounds are included.
struct Symbol {
  std::string name;
  int64_t min = 0;
  int64_t max = INT64_MAX;
};

struct TensorType {
  DType dtype = DType::kFloat32;
  std::vector<Dim> shape;

  bool operator==(const TensorType&) const = default;
};

// Bytes of a weight, contiguous and row-major, shared between graphs.
struct Constant {
  std::shared_ptr<const Storage> storage;
  int64_t offset_bytes = 0;
};

struct Value {
  std::string name;
  TensorType type;
  // Index in Graph::constants for a weight; -1 for an input or a node's result.
  int32_t constant = -1;
};

// One argument of an operator. Where the schema says Tensor, a number may stand (x + 1 is aten.add.Tensor(x, 1)): it
// takes part as PyTorch's scalars do, without deciding the dtype within its kind. A missing optional argument is
// monostate; an optional tensor in a list is kNoValue.
struct TensorRef {
  ValueId id = kNoValue;
  bool operator==(const TensorRef&) const = default;
};
using Argument = std::variant<std::monostate, TensorRef, std::vector<TensorRef>, bool, Dim, double, std::string, DType,
                              std::vector<Dim>, std::vector<double>, std::vector<bool>>;

// An operator's call. `op` is PyTorch's name with overload ("aten.add.Tensor") or one of ours ("qx.tile"); `arguments`
// follow its schema by position, defaults filled in, so that no reader needs the schema's default values.
struct Node {
  std::string op;
  std::string name;
  std::vector<Argument> arguments;
  std::vector<ValueId> results;
};

// A value that outlives a call: each call reads `input`, and what `output` holds at its end is read by the next. The
// first call reads the constant that `input` is, else zeros. No node and no caller's input produces `input`.
struct State {
  std::string name;
  ValueId input = kNoValue;
  ValueId output = kNoValue;
};

struct Graph {
  std::string name;
  std::vector<Symbol> symbols;
  std::vector<Constant> constants;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<State> states;
};

// Every id in range, every value produced exactly once and before its use, symbols with min <= max, constants inside
// their storage, operators and their arguments as the schema table says. The error names the node.
Status verify(const Graph& graph);

// One line a node, for people and tests: "%3: float32[s0, 64] = aten.mm.default(%1, %2)".
std::string to_text(const Graph& graph);

}  // namespace qx::graph
