// One node of a graph while it becomes mfuse operations: reads its arguments, emits operations, takes its results.
#pragma once

#include <optional>

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/TypeUtilities.h"
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/graph/graph.h"

namespace qx::compiler {

// The mfuse type of a graph's tensor; null for a dtype or shape that MLIR cannot hold.
mlir::RankedTensorType importType(const graph::TensorType& type, const graph::Graph& graph, mlir::MLIRContext* context);
// An affine size over the graph's symbols.
mlir::AffineExpr importDim(const graph::Dim& dim, mlir::MLIRContext* context);

class NodeImporter {
 public:
  // `lookup` gives the operation's value for a source value.
  NodeImporter(const graph::Graph& graph, int64_t node, mlir::OpBuilder& builder,
               llvm::function_ref<mlir::Value(graph::ValueId)> lookup);

  const graph::Node& node() const { return node_; }
  const graph::Graph& graph() const { return graph_; }
  // Every tensor of the arguments in their order, those of lists included; the order of an opaque operation's operands.
  llvm::SmallVector<mlir::Value> tensors() const;

  // Argument `index` if it is there and of this kind, else null or nullopt.
  bool missing(size_t index) const;
  mlir::Value tensor(size_t index) const;
  std::optional<llvm::SmallVector<mlir::Value>> tensorList(size_t index) const;
  std::optional<double> number(size_t index) const;
  std::optional<int64_t> integer(size_t index) const;
  std::optional<bool> boolean(size_t index) const;
  std::optional<llvm::StringRef> string(size_t index) const;
  std::optional<llvm::SmallVector<int64_t>> integers(size_t index) const;
  // A number as a value: f64 for a double, i64 for a bool or a size; what is symbolic becomes mfuse.size.
  mlir::Value scalar(size_t index);
  mlir::Value tensorOrScalar(size_t index);

  // Dimension numbers from the end are made positive; nullopt if one is out of range or given twice. They are sorted.
  static std::optional<llvm::SmallVector<int64_t>> normalizeDims(llvm::ArrayRef<int64_t> dims, int64_t rank);

  // The type that the graph states for a result; null for one that MLIR cannot hold.
  mlir::RankedTensorType resultType(size_t index) const;
  mlir::Type resultElement(size_t index = 0) const { return resultType(index).getElementType(); }

  // Whether another node or the graph's outputs and states read a result.
  bool isUsed(size_t index) const;

  // Emitters. Types follow from the operands, shapes by broadcasting; null operands or shapes that do not broadcast
  // give null, which all of them pass on.
  mlir::Value constant(double value);
  mlir::Value unary(mfuse::UnaryKind kind, mlir::Value input);
  mlir::Value binary(mfuse::BinaryKind kind, mlir::Value lhs, mlir::Value rhs);
  mlir::Value compare(mfuse::Predicate predicate, mlir::Value lhs, mlir::Value rhs);
  mlir::Value select(mlir::Value condition, mlir::Value onTrue, mlir::Value onFalse, mlir::Type element);
  // Between real numbers only: null for complex ones.
  mlir::Value cast(mlir::Value input, mlir::Type element);
  mlir::Value reduce(mfuse::ReduceKind kind, mlir::Value input, llvm::ArrayRef<int64_t> dims, bool keepdim);
  mlir::Value variance(mlir::Value input, llvm::ArrayRef<int64_t> dims, double correction, bool keepdim);
  mlir::Value reshape(mlir::Value input, mlir::RankedTensorType type);
  // In f32 where the elements are narrower: several operations in a row then round once, as PyTorch's kernels do.
  mlir::Value wide(mlir::Value input);

  // Takes `value` as a result, after a cast to the type that the graph states. False if it does not fit.
  bool finish(size_t index, mlir::Value value);
  const llvm::SmallVector<mlir::Value>& results() const { return results_; }

  mlir::OpBuilder& builder() { return builder_; }
  mlir::Location location() const { return location_; }

 private:
  mlir::RankedTensorType reducedType(mlir::RankedTensorType type, llvm::ArrayRef<int64_t> dims, bool keepdim) const;
  // What the operands broadcast to; null if they do not.
  mlir::RankedTensorType broadcast(llvm::ArrayRef<mlir::Value> operands, mlir::Type element) const;

  const graph::Graph& graph_;
  const graph::Node& node_;
  mlir::OpBuilder& builder_;
  mlir::Location location_;
  llvm::function_ref<mlir::Value(graph::ValueId)> lookup_;
  llvm::SmallVector<mlir::Value> results_;
};

}  // namespace qx::compiler
