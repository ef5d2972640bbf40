// A group of mfuse operations as one loop program.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "quincunx/base/status.h"
#include "quincunx/compiler/codegen/loop_program.h"

namespace qx::compiler {

struct LoweredRegion {
  LoopProgram program;
  // In the order of the program's inputs and outputs: values from outside, and results that operations outside use.
  llvm::SmallVector<mlir::Value> inputs;
  llvm::SmallVector<mlir::Value> outputs;
};

// `ops` are of one block, in its order. Reductions must run over the same dims, and every result that is used outside
// must have an element for each point of the others. UNIMPLEMENTED says what does not go together.
Result<LoweredRegion> lowerRegion(llvm::ArrayRef<mlir::Operation*> ops);

// The same with only `outputs`, some results of `ops`, that are all computed from these.
Result<LoweredRegion> lowerRegion(llvm::ArrayRef<mlir::Operation*> ops, llvm::ArrayRef<mlir::Value> outputs);

// Results of `ops` that other operations use.
llvm::SmallVector<mlir::Value> usedOutside(llvm::ArrayRef<mlir::Operation*> ops);

}  // namespace qx::compiler
