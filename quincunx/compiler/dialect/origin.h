// Where operations come from in the source graph::Graph. It travels in locations, because passes of MLIR (CSE, folding)
// ignore those when they compare operations and keep them when they move some.
#pragma once

#include <cstdint>

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "mlir/IR/Location.h"
#include "mlir/IR/Value.h"

namespace qx::mfuse {

// A location that says: stands for `nodes` (indices in Graph::nodes), and result i equals the value `values[i]` (ids in
// Graph::values; -1 for none).
mlir::Location originLocation(mlir::MLIRContext* context, llvm::ArrayRef<int64_t> nodes,
                              llvm::ArrayRef<int64_t> values);

// The source nodes that an operation stands for, in increasing order; empty if it has no origin.
llvm::SmallVector<int64_t> sourceNodes(mlir::Operation* op);
llvm::SmallVector<int64_t> sourceNodes(mlir::Location location);

// The source value that equals this one, or -1.
int64_t sourceValue(mlir::Value value);

// For a rewrite: the location of one new operation that takes the place of all `matched` operations, and whose results
// equal `replaced` (a null entry: the result equals none). The last of `matched` is the one whose place it takes.
mlir::Location mergedOrigin(llvm::ArrayRef<mlir::Operation*> matched, llvm::ArrayRef<mlir::Value> replaced);

// For a rewrite into several operations: an inner one's location, with `op`'s nodes and no value.
mlir::Location innerOrigin(mlir::Operation* op);

}  // namespace qx::mfuse
