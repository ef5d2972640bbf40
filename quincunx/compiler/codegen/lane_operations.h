// One instruction of a loop program as LLVM IR, on scalars or on vectors of lanes. In registers bool is i1, integers
// have their width, float64 is double and every other floating-point type is float.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "quincunx/compiler/codegen/loop_program.h"
#include "quincunx/compiler/codegen/vector_math.h"

namespace qx::compiler {

class LaneOperations {
 public:
  LaneOperations(llvm::IRBuilder<>& builder, bool has_fma) : b_(builder), math_(builder, has_fma) {}

  // The element's types in registers and in memory.
  llvm::Type* registerType(DType dtype);
  llvm::Type* memoryType(DType dtype);
  // `loaded` and the result of toMemory are of memoryType(dtype), or vectors of it.
  llvm::Value* fromMemory(llvm::Value* loaded, DType dtype);
  llvm::Value* toMemory(llvm::Value* value, DType dtype);

  // A constant of `lanes` equal elements; a scalar for 0.
  llvm::Value* constant(const Instruction& code, int lanes);
  llvm::Value* cast(llvm::Value* value, DType from, DType to);
  // Everything that has operands and is no reduction, store or cast. `type` is the operands' type (select: the
  // second's).
  llvm::Value* apply(Opcode opcode, DType type, llvm::ArrayRef<llvm::Value*> operands);

  // Reductions: what combines two partial results, what changes nothing, and the type that results are summed in:
  // double for sums and products of floats.
  llvm::Value* combine(Opcode reduction, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Constant* identity(Opcode reduction, DType dtype);
  llvm::Type* accumulatorType(Opcode reduction, DType dtype);
  llvm::Value* widen(Opcode reduction, DType dtype, llvm::Value* value);
  llvm::Value* narrow(Opcode reduction, DType dtype, llvm::Value* accumulator);

 private:
  llvm::Value* applyUnary(Opcode opcode, DType type, llvm::Value* x);
  llvm::Value* applyFunction(Opcode opcode, llvm::Value* x);
  llvm::Value* applyFloat(Opcode opcode, llvm::Value* a, llvm::Value* b);
  llvm::Value* applyInteger(Opcode opcode, DType type, llvm::Value* a, llvm::Value* b);
  llvm::Value* compare(Opcode opcode, DType type, llvm::Value* a, llvm::Value* b);
  llvm::Value* floorDivide(llvm::Value* a, llvm::Value* b);
  llvm::Value* divideIntegers(Opcode opcode, DType type, llvm::Value* a, llvm::Value* b);
  llvm::Value* roundTo(llvm::Value* value, DType half);
  llvm::Type* like(llvm::Value* value, llvm::Type* element);

  llvm::IRBuilder<>& b_;
  VectorMath math_;
};

}  // namespace qx::compiler
