#include "quincunx/compiler/dialect/mfuse.h"

#include "llvm/ADT/TypeSwitch.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "quincunx/compiler/dialect/mfuse_dialect.cpp.inc"
#include "quincunx/compiler/dialect/mfuse_enums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "quincunx/compiler/dialect/mfuse_attributes.cpp.inc"

namespace qx::mfuse {

void MFuseDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "quincunx/compiler/dialect/mfuse_attributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "quincunx/compiler/dialect/mfuse_ops.cpp.inc"
      >();
}

mlir::Operation* MFuseDialect::materializeConstant(mlir::OpBuilder& builder, mlir::Attribute value, mlir::Type type,
                                                   mlir::Location location) {
  if (auto elements = llvm::dyn_cast<mlir::ElementsAttr>(value); elements && elements.getType() == type) {
    return ConstantOp::create(builder, location, type, elements);
  }
  auto typed = llvm::dyn_cast<mlir::TypedAttr>(value);
  if (typed && typed.getType() == type && (type.isF64() || type.isInteger(64))) {
    return ScalarOp::create(builder, location, type, typed);
  }
  return nullptr;
}

bool isComposite(UnaryKind kind) { return kind >= UnaryKind::silu; }
bool isComposite(BinaryKind kind) { return kind >= BinaryKind::swiglu; }

bool isMatmulActivation(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::relu:
    case UnaryKind::tanh:
    case UnaryKind::sigmoid:
    case UnaryKind::silu:
    case UnaryKind::gelu_erf:
    case UnaryKind::gelu_tanh:
    case UnaryKind::gelu_quick: return true;
    default: return false;
  }
}

}  // namespace qx::mfuse
