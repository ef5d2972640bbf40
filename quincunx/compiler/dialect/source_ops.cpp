// Constraints, folders and effects of the operations without tensor operands, and of the opaque one.
#include "mlir/IR/AffineMap.h"
#include "quincunx/compiler/dialect/mfuse.h"

namespace qx::mfuse {

mlir::OpFoldResult ScalarOp::fold(FoldAdaptor) { return getValue(); }

mlir::OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

mlir::LogicalResult SizeOp::verify() {
  if (getMap().getNumDims() == 0 && getMap().getNumResults() == 1) return mlir::success();
  return emitOpError("(C1) expects a map without dimensions and with one result, got ") << getMapAttr();
}

mlir::LogicalResult IotaOp::verify() {
  if (getResult().getType().getRank() == 1) return mlir::success();
  return emitOpError("(C1) expects a result of rank 1, got ") << getResult().getType();
}

void OpaqueOp::getEffects(
    llvm::SmallVectorImpl<mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>>& effects) {
  if (!getWrites()) return;
  effects.emplace_back(mlir::MemoryEffects::Read::get());
  effects.emplace_back(mlir::MemoryEffects::Write::get());
}

}  // namespace qx::mfuse
