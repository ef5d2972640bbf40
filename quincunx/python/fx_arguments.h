// The arguments of one call in an FX graph, in the order of the operator's schema and with its defaults.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "quincunx/graph/graph.h"
#include "quincunx/graph/schema.h"
#include "quincunx/python/fx_types.h"

namespace qx::python {

// What a node of the FX graph stands for.
struct FxMeaning {
  enum Kind {
    kNothing,  // None, or something that no argument of a graph can be
    kValue,
    kList,    // several results
    kNumber,  // int, SymInt, float or bool, in `number`
  };
  Kind kind = kNothing;
  graph::ValueId value = graph::kNoValue;
  std::vector<FxMeaning> elements;
  nanobind::object number;
};

class FxArguments {
 public:
  // `meaning` gives what an FX node stands for.
  FxArguments(FxTypes& types, std::function<const FxMeaning&(nanobind::handle)> meaning);

  bool is_node(nanobind::handle value) const { return nanobind::isinstance(value, node_class_); }
  // Of a call of an OpOverload. Throws StatusError that names the argument.
  std::vector<graph::Argument> convert(nanobind::handle node);

 private:
  struct Parameter {
    std::string name;
    graph::ArgumentSchema schema;
    int64_t length = 0;  // int[2]: a single number stands for that many
    bool has_default = false;
    nanobind::object default_value;
  };

  const std::vector<Parameter>& parameters(nanobind::handle target);
  graph::Argument argument(const Parameter& parameter, nanobind::handle value);
  nanobind::object resolved(nanobind::handle value) const;
  bool is_tensor_node(nanobind::handle value) const;
  graph::TensorRef tensor(nanobind::handle value) const;
  graph::Argument scalar(nanobind::handle value);
  graph::Argument ints(const Parameter& parameter, nanobind::handle value);
  graph::Dim number(nanobind::handle value);
  double real(nanobind::handle value) const;

  FxTypes& types_;
  std::function<const FxMeaning&(nanobind::handle)> meaning_;
  nanobind::object node_class_;
  std::unordered_map<PyObject*, std::vector<Parameter>> parameters_;
};

}  // namespace qx::python
