// Constraints and folders of the operations that arrange elements anew.
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/dialect/shapes.h"

namespace qx::mfuse {
namespace {

bool sameSizesBut(mlir::RankedTensorType a, mlir::RankedTensorType b, int64_t except) {
  if (a.getRank() != b.getRank()) return false;
  for (int64_t dim = 0; dim < a.getRank(); ++dim) {
    if (dim != except && !mayBeEqual(a, dim, b, dim)) return false;
  }
  return true;
}

// The operand, where the operation changes nothing.
mlir::OpFoldResult identity(mlir::Value input, mlir::Type result) {
  return input.getType() == result ? mlir::OpFoldResult(input) : mlir::OpFoldResult();
}

}  // namespace

mlir::LogicalResult verifyRearrange(mlir::Operation* op) {
  mlir::Type element = llvm::cast<mlir::RankedTensorType>(op->getResult(0).getType()).getElementType();
  for (mlir::Type type : op->getOperandTypes()) {
    if (llvm::cast<mlir::RankedTensorType>(type).getElementType() != element) {
      return op->emitOpError("expects operands of the result's element type ") << element << ", got " << type;
    }
  }
  return mlir::success();
}

mlir::LogicalResult ReshapeOp::verify() {
  auto input = getInput().getType(), result = getResult().getType();
  if (!input.hasStaticShape() || !result.hasStaticShape()) return mlir::success();
  if (input.getNumElements() == result.getNumElements()) return mlir::success();
  return emitOpError("(C1) expects as many elements in the result, got ") << input << " and " << result;
}

mlir::OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  // A product inside a larger pattern equals no value of the source, its reshape does: both stay.
  const auto hidesProduct = [](ReshapeOp inner) {
    return inner.getInput().getDefiningOp<MatmulOp>() && sourceValue(inner.getInput()) < 0 &&
           sourceValue(inner.getResult()) >= 0;
  };
  if (auto inner = getInput().getDefiningOp<ReshapeOp>(); inner && !hidesProduct(inner)) {
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return identity(getInput(), getType());
}

mlir::LogicalResult PermuteOp::verify() {
  auto input = getInput().getType(), result = getResult().getType();
  llvm::ArrayRef<int64_t> permutation = getPermutation();
  llvm::SmallVector<bool> seen(input.getRank(), false);
  for (int64_t dim : permutation) {
    if (dim < 0 || dim >= input.getRank() || seen[dim]) {
      return emitOpError("(C1) expects each of 0 to ") << input.getRank() - 1 << " once, got " << getPermutationAttr();
    }
    seen[dim] = true;
  }
  if (static_cast<int64_t>(permutation.size()) != input.getRank() || result.getRank() != input.getRank()) {
    return emitOpError("(C1) expects ") << input.getRank() << " dimensions, got " << permutation.size();
  }
  for (int64_t dim = 0; dim < input.getRank(); ++dim) {
    if (!mayBeEqual(input, permutation[dim], result, dim)) {
      return emitOpError("(C2) expects the operand's sizes in the order of the permutation, got ") << result;
    }
  }
  return mlir::success();
}

mlir::OpFoldResult PermuteOp::fold(FoldAdaptor) {
  for (auto [index, dim] : llvm::enumerate(getPermutation())) {
    if (dim != static_cast<int64_t>(index)) return {};
  }
  return identity(getInput(), getType());
}

mlir::LogicalResult BroadcastOp::verify() {
  if (broadcastsTo(getInput().getType(), getResult().getType())) return mlir::success();
  return emitOpError("(C1) expects an operand that broadcasts to ") << getType() << ", got " << getInput().getType();
}

mlir::OpFoldResult BroadcastOp::fold(FoldAdaptor) { return identity(getInput(), getType()); }

mlir::LogicalResult SliceOp::verify() {
  auto input = getInput().getType(), result = getResult().getType();
  int64_t dim = getDim(), start = getStart(), step = getStep();
  if (dim < 0 || dim >= input.getRank()) {
    return emitOpError("(C1) expects dim in [0, ") << input.getRank() << "), got " << dim;
  }
  if (start < 0 || step < 1) {
    return emitOpError("(C2) expects start >= 0 and step >= 1, got ") << start << " and " << step;
  }
  if (!sameSizesBut(input, result, dim)) return emitOpError("(C3) expects the operand's other sizes, got ") << result;
  if (input.isDynamicDim(dim) || result.isDynamicDim(dim) || result.getDimSize(dim) == 0) return mlir::success();
  // Division instead of a product, which might overflow.
  if (start < input.getDimSize(dim) && (input.getDimSize(dim) - 1 - start) / step + 1 >= result.getDimSize(dim)) {
    return mlir::success();
  }
  return emitOpError("(C3) expects elements inside the operand's ")
         << input.getDimSize(dim) << ", got " << result.getDimSize(dim) << " from " << start;
}

mlir::OpFoldResult SliceOp::fold(FoldAdaptor) {
  if (getStart() != 0 || getStep() != 1) return {};
  return identity(getInput(), getType());
}

mlir::LogicalResult CatOp::verify() {
  auto result = getResult().getType();
  int64_t dim = getDim();
  if (getInputs().empty() || dim < 0 || dim >= result.getRank()) {
    return emitOpError("(C1) expects operands and dim in [0, ") << result.getRank() << "), got dim " << dim;
  }
  int64_t total = 0;
  bool known = !result.isDynamicDim(dim);
  for (mlir::Value input : getInputs()) {
    auto type = llvm::cast<mlir::RankedTensorType>(input.getType());
    if (!sameSizesBut(type, result, dim)) {
      return emitOpError("(C2) expects operands with the result's other sizes, got ") << type;
    }
    known &= !type.isDynamicDim(dim);
    total += type.isDynamicDim(dim) ? 0 : type.getDimSize(dim);
  }
  if (!known || total == result.getDimSize(dim)) return mlir::success();
  return emitOpError("(C3) expects a size of ") << total << " along dim " << dim << ", got " << result;
}

}  // namespace qx::mfuse
