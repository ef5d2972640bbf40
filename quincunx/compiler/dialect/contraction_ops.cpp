// Constraints of reductions and matrix products.
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/dialect/shapes.h"

namespace qx::mfuse {
namespace {

mlir::LogicalResult verifyReducedShape(mlir::Operation* op, mlir::RankedTensorType input, mlir::RankedTensorType result,
                                       llvm::ArrayRef<int64_t> dims, bool keepdim) {
  for (auto [index, dim] : llvm::enumerate(dims)) {
    if (dim < 0 || dim >= input.getRank() || (index > 0 && dims[index - 1] >= dim)) {
      return op->emitOpError("(C1) expects increasing dims in [0, ") << input.getRank() << "), got " << dim;
    }
  }
  int64_t expected = input.getRank() - (keepdim ? 0 : static_cast<int64_t>(dims.size()));
  bool equal = result.getRank() == expected;
  for (int64_t dim = 0, out = 0; equal && dim < input.getRank(); ++dim) {
    if (!llvm::is_contained(dims, dim)) {
      equal = mayBeEqual(input, dim, result, out++);
    } else if (keepdim) {
      equal = result.getDimSize(out++) == 1;
    }
  }
  if (equal) return mlir::success();
  return op->emitOpError("(C2) expects the operand's shape ") << input << " without the dims, got " << result;
}

// Whether dimensions [0, count) of both are equal.
bool sameLeading(mlir::RankedTensorType a, mlir::RankedTensorType b, int64_t count) {
  for (int64_t dim = 0; dim < count; ++dim) {
    if (!mayBeEqual(a, dim, b, dim)) return false;
  }
  return true;
}

}  // namespace

mlir::LogicalResult ReduceOp::verify() {
  auto input = getInput().getType(), result = getResult().getType();
  if (mlir::failed(verifyReducedShape(*this, input, result, getDims(), getKeepdim()))) return mlir::failure();
  mlir::Type element = input.getElementType();
  bool logical = getKind() == ReduceKind::any || getKind() == ReduceKind::all;
  bool right = result.getElementType() == element && (!logical || element.isInteger(1)) &&
               (getKind() != ReduceKind::mean || llvm::isa<mlir::FloatType>(element));
  if (right) return mlir::success();
  return emitOpError("(C3) does not reduce ") << element << " to " << result.getElementType();
}

mlir::LogicalResult VarianceOp::verify() {
  auto input = getInput().getType(), result = getResult().getType();
  if (mlir::failed(verifyReducedShape(*this, input, result, getDims(), getKeepdim()))) return mlir::failure();
  if (input.getElementType() == result.getElementType()) return mlir::success();
  return emitOpError("(C3) expects a result of ") << input.getElementType() << ", got " << result.getElementType();
}

mlir::LogicalResult MatmulOp::verify() {
  auto lhs = getLhs().getType(), rhs = getRhs().getType(), result = getResult().getType();
  int64_t rank = lhs.getRank(), rhsRank = rhs.getRank();
  if (rank < 2 || rhsRank < 2) return emitOpError("(C1) expects ranks of 2 or more, got ") << lhs << " and " << rhs;
  int64_t rows = getTransposeLhs() ? rank - 1 : rank - 2, inner = getTransposeLhs() ? rank - 2 : rank - 1;
  int64_t columns = getTransposeRhs() ? rhsRank - 2 : rhsRank - 1,
          rhsInner = getTransposeRhs() ? rhsRank - 1 : rhsRank - 2;
  if (!mayBeEqual(lhs, inner, rhs, rhsInner)) {
    return emitOpError("(C1) expects equal sizes to sum over, got ") << lhs << " and " << rhs;
  }
  if (rhsRank != 2 && (rhsRank != rank || !sameLeading(lhs, rhs, rank - 2))) {
    return emitOpError("(C2) expects a second operand of rank 2 or equal leading sizes, got ") << lhs << " and " << rhs;
  }
  if (result.getRank() != rank || !sameLeading(lhs, result, rank - 2) || !mayBeEqual(lhs, rows, result, rank - 2) ||
      !mayBeEqual(rhs, columns, result, rank - 1)) {
    return emitOpError("(C3) expects leading sizes, rows and columns, got ") << result;
  }
  for (mlir::Value operand : getOperands()) {
    auto type = llvm::cast<mlir::RankedTensorType>(operand.getType());
    if (type.getElementType() != result.getElementType()) {
      return emitOpError("(C4) expects operands of the result's element type, got ") << type;
    }
  }
  if (mlir::Value bias = getBias()) {
    auto type = llvm::cast<mlir::RankedTensorType>(bias.getType());
    if (type.getRank() != 1 || !mayBeEqual(type, 0, result, rank - 1)) {
      return emitOpError("(C5) expects a bias of rank 1 with one element a column, got ") << type;
    }
  }
  for (auto [name, operand] : {std::pair("multiplier", getMultiplier()), std::pair("residual", getResidual())}) {
    if (!operand) continue;
    auto type = llvm::cast<mlir::RankedTensorType>(operand.getType());
    if (type.getRank() != rank || !sameLeading(type, result, rank)) {
      return emitOpError("(C6) expects a ") << name << " of the result's shape, got " << type;
    }
  }
  if (!getActivation() || isMatmulActivation(*getActivation())) return mlir::success();
  return emitOpError("(C7) does not take the activation ") << stringifyUnaryKind(*getActivation());
}

}  // namespace qx::mfuse
