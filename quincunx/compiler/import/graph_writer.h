// A graph::Graph while mfuse operations are written into it.
#pragma once

#include <string>
#include <vector>

#include "llvm/ADT/DenseMap.h"
#include "mlir/IR/AffineExpr.h"
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/graph/graph.h"

namespace qx::compiler {

class GraphWriter {
 public:
  // Name, symbols and constants are the source's.
  explicit GraphWriter(const graph::Graph& source);

  graph::Graph& graph() { return graph_; }
  // For each value of the graph the source value that it equals, or -1.
  const std::vector<int64_t>& origins() const { return origins_; }

  // The value that was written for an operation's result or argument. It has been written.
  graph::ValueId value(mlir::Value value) const;

  Status addArgument(mlir::Value argument, bool isInput);
  Status addConstant(mlir::Value value, int32_t constant);
  void alias(mlir::Value value, mlir::Value of);
  // A node whose results are `results`, of their types.
  Status add(std::string op, std::vector<graph::Argument> arguments, mlir::ValueRange results);
  // A node with one result that no operation has; its id.
  Result<graph::ValueId> addInner(std::string op, std::vector<graph::Argument> arguments, mlir::RankedTensorType type);

  // Arguments of nodes.
  graph::Argument tensor(mlir::Value value) const { return graph::TensorRef{this->value(value)}; }
  // A tensor, a double or a size, whichever the value is.
  Result<graph::Argument> tensorOrScalar(mlir::Value value) const;
  Result<std::vector<graph::Dim>> shape(mlir::RankedTensorType type) const;
  Result<graph::Dim> dim(mlir::AffineExpr size) const;

 private:
  Result<graph::ValueId> newValue(mlir::RankedTensorType type, int64_t origin);

  const graph::Graph& source_;
  graph::Graph graph_;
  std::vector<int64_t> origins_;
  llvm::DenseMap<mlir::Value, graph::ValueId> ids_;
};

// Operations whose elements do not depend on each other, and the others (shapes, reductions, products, norms).
Status writeElementwise(GraphWriter& writer, mlir::Operation& op);
Status writeTensorOperation(GraphWriter& writer, mlir::Operation& op);

}  // namespace qx::compiler
