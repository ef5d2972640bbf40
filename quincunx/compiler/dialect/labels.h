// The user's names for parts of the source graph.
#pragma once

#include <string>

#include "llvm/ADT/ArrayRef.h"
#include "mlir/IR/BuiltinOps.h"

namespace qx::mfuse {

// Keeps a label for each source node with the module; "" is none.
void setLabels(mlir::ModuleOp module, llvm::ArrayRef<std::string> labels);

// The label of the nodes that an operation stands for; "" if they have none or several.
llvm::StringRef labelOf(mlir::Operation* op);

}  // namespace qx::mfuse
