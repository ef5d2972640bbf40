// Traits of mfuse operations that passes ask for instead of listing operations.
#pragma once

#include "mlir/IR/OpDefinition.h"

namespace qx::mfuse {

// The constraints of Elementwise:
// (E1) every tensor operand's shape broadcasts to the result's: aligned at the end, each size is equal or 1.
// (E2) at least one operand is a tensor.
// (E3) all tensor operands have one element type (for select: its last two; a cast may change it).
mlir::LogicalResult verifyElementwise(mlir::Operation* op);

template <typename Concrete>
class Elementwise : public mlir::OpTrait::TraitBase<Concrete, Elementwise> {
 public:
  static mlir::LogicalResult verifyTrait(mlir::Operation* op) { return verifyElementwise(op); }
};

// Rearrange: the result holds the operands' elements and computes nothing, so the element types are equal.
mlir::LogicalResult verifyRearrange(mlir::Operation* op);

template <typename Concrete>
class Rearrange : public mlir::OpTrait::TraitBase<Concrete, Rearrange> {
 public:
  static mlir::LogicalResult verifyTrait(mlir::Operation* op) { return verifyRearrange(op); }
};

template <typename Concrete>
class Composite : public mlir::OpTrait::TraitBase<Concrete, Composite> {};

}  // namespace qx::mfuse
