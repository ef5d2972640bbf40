// A region that is a matrix product with a weight becomes a product program.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "mlir/IR/Operation.h"
#include "quincunx/base/status.h"
#include "quincunx/compiler/codegen/product_kernel.h"

namespace qx::compiler {

struct LoweredProduct {
  ProductProgram program;
  // In the order of the program's.
  llvm::SmallVector<mlir::Value> inputs;
  mlir::Value output;
};

// Whether `op` is a product that a region can be made of: an mfuse.matmul of f32 whose right operand is a weight, with
// an epilogue that the kernel computes. The message is the reason.
Status canLowerProduct(mlir::Operation* op);

// One such product and reshapes of its result, multiplier or residual that no value of the source equals.
Result<LoweredProduct> lowerProduct(llvm::ArrayRef<mlir::Operation*> ops);

}  // namespace qx::compiler
