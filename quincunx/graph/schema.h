// What each operator of a graph takes and gives. The table is data (operators.inc); an operator that it lacks is legal
// in a graph, and whoever needs to know asks find_schema.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/graph/graph.h"

namespace qx::graph {

enum class ArgumentKind {
  kTensor,  // or a number, as in x + 1: a tensor without sizes that does not decide the result's dtype
  kTensorList,
  kScalar,  // bool, Dim or double
  kInt,
  kIntList,
  kFloat,
  kFloatList,
  kBool,
  kBoolList,
  kString,
  kDType,
  kLayout,  // these four are strings: "strided", "cpu", "channels_last"; a generator is always missing
  kDevice,
  kMemoryFormat,
  kGenerator,
};

struct ArgumentSchema {
  std::string_view name;
  ArgumentKind kind = ArgumentKind::kTensor;
  bool optional = false;           // may be std::monostate
  bool optional_elements = false;  // a tensor list may hold kNoValue
};

struct OperatorSchema {
  std::string_view name;  // "aten.add.Tensor"
  std::vector<ArgumentSchema> arguments;
  // kTensor or kTensorList each. Results of other kinds are folded into symbols by the importer. One kTensorList stands
  // for any number of results.
  std::vector<ArgumentKind> results;

  // The position of an argument; -1 if there is none of that name.
  int find(std::string_view argument) const;
};

// Null for an operator that the table does not have. The table is built on the first call; thread-safe.
const OperatorSchema* find_schema(std::string_view op);

// All rows, sorted by name.
std::span<const OperatorSchema> schemas();

// "Tensor?[]": PyTorch's spelling.
std::string kind_text(const ArgumentSchema& argument);

// Whether `argument` has the kind that `schema` asks for.
bool accepts(const ArgumentSchema& schema, const Argument& argument);

}  // namespace qx::graph
