// Constraints and folders of the elementwise operations.
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/dialect/shapes.h"

namespace qx::mfuse {
namespace {

mlir::RankedTensorType tensorTypeOf(mlir::Value value) {
  return llvm::dyn_cast<mlir::RankedTensorType>(value.getType());
}

// The element type that the tensors among `values` share; null if there is none. E3 has been verified.
mlir::Type elementOf(mlir::ValueRange values) {
  for (mlir::Value value : values) {
    if (auto type = tensorTypeOf(value)) return type.getElementType();
  }
  return {};
}

mlir::LogicalResult verifyOneElementType(mlir::Operation* op, mlir::ValueRange values) {
  mlir::Type element = elementOf(values);
  for (mlir::Value value : values) {
    auto type = tensorTypeOf(value);
    if (type && type.getElementType() != element) {
      return op->emitOpError("(E3) expects tensor operands of one element type, got ")
             << element << " and " << type.getElementType();
    }
  }
  return mlir::success();
}

mlir::LogicalResult verifyScalars(mlir::Operation* op, llvm::StringRef constraint, mlir::ValueRange values,
                                  mlir::Type element) {
  for (mlir::Value value : values) {
    if (value.getType().isF64() && !llvm::isa<mlir::FloatType>(element)) {
      return op->emitOpError() << "(" << constraint << ") expects no f64 scalar beside tensors of " << element;
    }
  }
  return mlir::success();
}

bool takesIntegers(UnaryKind kind) {
  return kind == UnaryKind::neg || kind == UnaryKind::abs || kind == UnaryKind::sign || kind == UnaryKind::relu ||
         kind == UnaryKind::isnan || kind == UnaryKind::isinf;
}

bool isBitwise(BinaryKind kind) {
  return kind == BinaryKind::bitwise_and || kind == BinaryKind::bitwise_or || kind == BinaryKind::bitwise_xor;
}

}  // namespace

mlir::LogicalResult verifyElementwise(mlir::Operation* op) {
  auto result = llvm::cast<mlir::RankedTensorType>(op->getResult(0).getType());
  bool found = false;
  for (mlir::Value operand : op->getOperands()) {
    auto type = tensorTypeOf(operand);
    if (!type) continue;
    found = true;
    if (!broadcastsTo(type, result)) {
      return op->emitOpError("(E1) expects operands that broadcast to ") << result << ", got " << type;
    }
  }
  if (!found) return op->emitOpError("(E2) expects at least one tensor operand");
  mlir::ValueRange compared = op->getOperands();
  if (llvm::isa<SelectOp>(op)) compared = compared.drop_front();
  return verifyOneElementType(op, compared);
}

mlir::LogicalResult UnaryOp::verify() {
  mlir::Type element = getInput().getType().getElementType(), result = getResult().getType().getElementType();
  bool test = getKind() == UnaryKind::isnan || getKind() == UnaryKind::isinf;
  if (test ? !result.isInteger(1) : result != element) {
    return emitOpError("(C1) expects a result of ")
           << (test ? "i1" : "the operand's element type") << ", got " << result;
  }
  if (llvm::isa<mlir::FloatType>(element)) {
    if (getKind() != UnaryKind::bitwise_not) return mlir::success();
  } else if (getKind() == UnaryKind::bitwise_not || takesIntegers(getKind())) {
    return mlir::success();
  }
  return emitOpError("(C2) does not take elements of ") << element;
}

mlir::LogicalResult BinaryOp::verify() {
  mlir::Type element = elementOf(getOperands()), result = getResult().getType().getElementType();
  if (result != element) return emitOpError("(C1) expects a result of ") << element << ", got " << result;
  if (mlir::failed(verifyScalars(*this, "C2", getOperands(), element))) return mlir::failure();
  bool isFloat = llvm::isa<mlir::FloatType>(element);
  bool needsFloat = getKind() == BinaryKind::div || getKind() == BinaryKind::atan2 || isComposite(getKind());
  if ((needsFloat && !isFloat) || (isBitwise(getKind()) && isFloat)) {
    return emitOpError("(C3) does not take elements of ") << element;
  }
  return mlir::success();
}

mlir::LogicalResult CompareOp::verify() {
  mlir::Type result = getResult().getType().getElementType();
  if (!result.isInteger(1)) return emitOpError("(C1) expects a result of i1, got ") << result;
  return verifyScalars(*this, "C2", getOperands(), elementOf(getOperands()));
}

mlir::LogicalResult SelectOp::verify() {
  if (!getCondition().getType().getElementType().isInteger(1)) {
    return emitOpError("(C1) expects a condition of i1, got ") << getCondition().getType();
  }
  mlir::Type result = getResult().getType().getElementType();
  mlir::ValueRange choices = getOperands().drop_front();
  mlir::Type element = elementOf(choices);
  if (element && element != result) {
    return emitOpError("(C2) expects a result of ") << element << ", got " << result;
  }
  return verifyScalars(*this, "C2", choices, result);
}

mlir::LogicalResult CastOp::verify() {
  auto input = getInput().getType(), result = getResult().getType();
  if (input.getRank() == result.getRank() && broadcastsTo(input, result) && broadcastsTo(result, input)) {
    return mlir::success();
  }
  return emitOpError("(C1) expects equal shapes, got ") << input << " and " << result;
}

mlir::OpFoldResult CastOp::fold(FoldAdaptor) {
  return getInput().getType() == getType() ? mlir::OpFoldResult(getInput()) : mlir::OpFoldResult();
}

}  // namespace qx::mfuse
