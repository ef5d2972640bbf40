// Constraints of the composite operations.
#include <cmath>

#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/dialect/shapes.h"

namespace qx::mfuse {
namespace {

// Whether `parameter` is absent, or has the last `count` sizes of `input` and its element type.
bool isParameter(mlir::Value parameter, mlir::RankedTensorType input, int64_t count) {
  if (!parameter) return true;
  auto type = llvm::cast<mlir::RankedTensorType>(parameter.getType());
  if (type.getRank() != count || type.getElementType() != input.getElementType()) return false;
  for (int64_t dim = 0; dim < count; ++dim) {
    if (!mayBeEqual(type, dim, input, input.getRank() - count + dim)) return false;
  }
  return true;
}

bool isEpsilon(const llvm::APFloat& eps) { return eps.isFinite() && !(eps.isNegative() && !eps.isZero()); }

template <typename Norm>
mlir::LogicalResult verifyRmsNorm(Norm op) {
  auto input = op.getInput().getType();
  if (input.getRank() < 1 || op.getResult().getType() != input) {
    return op.emitOpError("(C1) expects rank 1 or more and a result of the operand's type, got ") << input;
  }
  if (!isParameter(op.getWeight(), input, 1)) {
    return op.emitOpError("(C2) expects a weight of the last dimension, got ") << op.getWeight().getType();
  }
  if (!isEpsilon(op.getEps())) return op.emitOpError("(C3) expects eps >= 0, got ") << op.getEpsAttr();
  return mlir::success();
}

}  // namespace

mlir::LogicalResult RmsNormOp::verify() { return verifyRmsNorm(*this); }

mlir::LogicalResult AddRmsNormOp::verify() {
  if (getResidual().getType() != getInput().getType() || getSum().getType() != getInput().getType()) {
    return emitOpError("(C4) expects operands and results of one type, got ")
           << getInput().getType() << ", " << getResidual().getType() << " and " << getSum().getType();
  }
  return verifyRmsNorm(*this);
}

mlir::LogicalResult LayerNormOp::verify() {
  auto input = getInput().getType();
  auto count = static_cast<int64_t>(getNumDims());
  if (getResult().getType() != input || count < 1 || count > input.getRank()) {
    return emitOpError("(C1) expects a result of the operand's type and num_dims in [1, ")
           << input.getRank() << "], got " << getResult().getType() << " and " << count;
  }
  for (mlir::Value parameter : {getWeight(), getBias()}) {
    if (!isParameter(parameter, input, count)) {
      return emitOpError("(C2) expects weight and bias of the last dimensions, got ") << parameter.getType();
    }
  }
  if (!isEpsilon(getEps())) return emitOpError("(C3) expects eps >= 0, got ") << getEpsAttr();
  return mlir::success();
}

mlir::LogicalResult SoftmaxOp::verify() {
  auto input = getInput().getType();
  auto dim = static_cast<int64_t>(getDim());
  if (getResult().getType() == input && dim >= 0 && dim < input.getRank()) return mlir::success();
  return emitOpError("(C1) expects a result of the operand's type and dim in [0, ")
         << input.getRank() << "), got " << dim;
}

mlir::LogicalResult RopeOp::verify() {
  auto input = getInput().getType(), cos = getCos().getType();
  int64_t last = input.getRank() - 1;
  if (last < 0 || getResult().getType() != input || input.isDynamicDim(last) || input.getDimSize(last) % 2 != 0) {
    return emitOpError("(C1) expects a known even last size and a result of the operand's type, got ") << input;
  }
  if (cos != getSin().getType() || cos.getElementType() != input.getElementType() || cos.getRank() < 1 ||
      !broadcastsTo(cos, input) || cos.getDimSize(cos.getRank() - 1) != input.getDimSize(last)) {
    return emitOpError("(C2) expects cos and sin that broadcast to ") << input << ", got " << cos;
  }
  return mlir::success();
}

}  // namespace qx::mfuse
