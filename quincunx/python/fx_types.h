// Tensor types, sizes and symbols of the values that torch's fake tensors stand for.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "quincunx/graph/graph.h"

namespace qx::python {

// Reads dtypes and sizes; new symbols go into the graph, equal ones get one index. Throws StatusError.
class FxTypes {
 public:
  explicit FxTypes(graph::Graph& graph);

  bool is_tensor(nanobind::handle value) const;
  bool is_sym_int(nanobind::handle value) const;
  bool is_dtype(nanobind::handle value) const;
  // int or SymInt, not bool.
  bool is_int(nanobind::handle value) const;
  // SymBool or SymFloat: a number that depends on sizes and that a Dim cannot hold.
  bool is_other_symbolic(nanobind::handle value) const;

  // CPU tensors of strided layout only.
  graph::TensorType tensor_type(nanobind::handle tensor);
  // A number, or an affine function of one symbol. Any other expression becomes a symbol of its own.
  graph::Dim dim(nanobind::handle value);
  DType dtype(nanobind::handle torch_dtype) const;

  // The sympy expression of each of the graph's symbols.
  const std::vector<nanobind::object>& expressions() const { return expressions_; }

 private:
  int32_t symbol(nanobind::handle expression, nanobind::handle shape_env);

  graph::Graph& graph_;
  nanobind::object tensor_class_;
  nanobind::object sym_int_class_;
  nanobind::object sym_bool_class_;
  nanobind::object sym_float_class_;
  nanobind::object dtype_class_;
  nanobind::dict symbols_;
  std::vector<nanobind::object> expressions_;
};

}  // namespace qx::python
