// mfuse's elementwise operations as instructions. bfloat16 and float16 are computed in f32: values of these types are
// carried as f32, and only loads, stores and casts name them.
#pragma once

#include <optional>

#include "llvm/ADT/ArrayRef.h"
#include "quincunx/compiler/codegen/loop_program.h"
#include "quincunx/compiler/dialect/mfuse.h"

namespace qx::compiler {

// float32 for the 16-bit floats, else `dtype`.
DType computeType(DType dtype);
// The dtype of a tensor's or scalar's elements.
DType elementDType(mlir::Type type);
// A number that is known: a scalar, or a constant whose elements are equal.
std::optional<double> uniformNumber(mlir::Value value);

Status canLowerElementwise(mlir::Operation* op);
// `operands` are instructions, of the type that elementDType's computeType gives for tensors; scalars have been
// converted to the tensor operands' type. Only for what canLowerElementwise accepts.
int32_t lowerElementwise(LoopProgram& program, mlir::Operation* op, llvm::ArrayRef<int32_t> operands);

}  // namespace qx::compiler
