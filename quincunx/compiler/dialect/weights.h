// Which tensors are weights: the same in many calls, so that another form of them may be kept.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "quincunx/compiler/dialect/mfuse.h"

namespace qx::mfuse {

// Says of the arguments of `module`'s functions which are weights: those that equal one of these source values.
void markWeights(mlir::ModuleOp module, llvm::ArrayRef<int64_t> values);

// An argument that was marked, or an mfuse.weight.
bool isWeight(mlir::Value value);

// An f32 product whose right operand has rank 2 and is a weight or the transpose of one: what a packed product
// computes.
bool isWeightProduct(MatmulOp product);

}  // namespace qx::mfuse
