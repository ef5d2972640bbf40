// What lowering asks of single operations: shapes as sizes, kinds, and whether loops can express them at all.
#pragma once

#include <optional>
#include <vector>

#include "llvm/ADT/ArrayRef.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::compiler {

using Shape = std::vector<graph::Dim>;

// Null for what is not affine in one symbol.
std::optional<graph::Dim> dimOf(mlir::AffineExpr expression);
std::optional<Shape> shapeOf(mlir::Value value);

bool isElementwise(mlir::Operation* op);
// Reductions and variances, and over which dims.
bool isReduce(mlir::Operation* op);
llvm::ArrayRef<int64_t> reducedDims(mlir::Operation* op);
bool keepsDims(mlir::Operation* op);

// Known numbers (mfuse.scalar, size, full, and constant with equal elements): part of every region that uses them.
bool isNumber(mlir::Operation* op);

// Whether some region can hold the operation: its kind, dtypes and shapes. The message says what is not supported.
Status canLower(mlir::Operation* op);

}  // namespace qx::compiler
