#include "quincunx/compiler/dialect/shapes.h"

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinAttributes.h"

namespace qx::mfuse {
namespace {

mlir::AffineMap encodingMap(mlir::RankedTensorType type) {
  auto attribute = llvm::dyn_cast_if_present<mlir::AffineMapAttr>(type.getEncoding());
  if (!attribute || attribute.getValue().getNumResults() != type.getRank()) return {};
  return attribute.getValue();
}

}  // namespace

mlir::AffineExpr dimSize(mlir::RankedTensorType type, int64_t dim) {
  if (!type.isDynamicDim(dim)) return mlir::getAffineConstantExpr(type.getDimSize(dim), type.getContext());
  mlir::AffineMap map = encodingMap(type);
  return map ? map.getResult(dim) : mlir::AffineExpr();
}

llvm::SmallVector<mlir::AffineExpr> dimSizes(mlir::RankedTensorType type) {
  llvm::SmallVector<mlir::AffineExpr> sizes;
  for (int64_t dim = 0; dim < type.getRank(); ++dim) sizes.push_back(dimSize(type, dim));
  return sizes;
}

mlir::RankedTensorType tensorType(llvm::ArrayRef<mlir::AffineExpr> sizes, unsigned numSymbols, mlir::Type element) {
  llvm::SmallVector<int64_t> shape;
  bool dynamic = false, complete = true;
  for (mlir::AffineExpr size : sizes) {
    auto constant = llvm::dyn_cast_if_present<mlir::AffineConstantExpr>(size);
    shape.push_back(constant ? constant.getValue() : mlir::ShapedType::kDynamic);
    dynamic |= !constant;
    complete &= size != nullptr;
  }
  if (!dynamic || !complete) return mlir::RankedTensorType::get(shape, element);
  auto map = mlir::AffineMap::get(0, numSymbols, sizes, element.getContext());
  return mlir::RankedTensorType::get(shape, element, mlir::AffineMapAttr::get(map));
}

mlir::RankedTensorType withElementType(mlir::RankedTensorType type, mlir::Type element) {
  return mlir::RankedTensorType::get(type.getShape(), element, type.getEncoding());
}

unsigned numSymbols(mlir::RankedTensorType type) {
  mlir::AffineMap map = encodingMap(type);
  return map ? map.getNumSymbols() : 0;
}

bool sameShape(mlir::RankedTensorType a, mlir::RankedTensorType b) {
  if (a.getRank() != b.getRank()) return false;
  for (int64_t dim = 0; dim < a.getRank(); ++dim) {
    mlir::AffineExpr size = dimSize(a, dim);
    if (!size || size != dimSize(b, dim)) return false;
  }
  return true;
}

bool mayBeEqual(mlir::RankedTensorType a, int64_t dimA, mlir::RankedTensorType b, int64_t dimB) {
  mlir::AffineExpr sizeA = dimSize(a, dimA), sizeB = dimSize(b, dimB);
  if (!sizeA || !sizeB || sizeA == sizeB) return true;
  // Two symbols may have one value, a symbol may have the value of a constant; two constants differ for good.
  return !llvm::isa<mlir::AffineConstantExpr>(sizeA) || !llvm::isa<mlir::AffineConstantExpr>(sizeB);
}

bool broadcastsTo(mlir::RankedTensorType from, mlir::RankedTensorType to) {
  if (from.getRank() > to.getRank()) return false;
  int64_t offset = to.getRank() - from.getRank();
  for (int64_t dim = 0; dim < from.getRank(); ++dim) {
    if (from.getDimSize(dim) != 1 && !mayBeEqual(from, dim, to, dim + offset)) return false;
  }
  return true;
}

mlir::Type elementType(mlir::MLIRContext* context, DType dtype) {
  auto integer = [&](unsigned width) { return mlir::IntegerType::get(context, width); };
  auto unsignedInteger = [&](unsigned width) {
    return mlir::IntegerType::get(context, width, mlir::IntegerType::Unsigned);
  };
  switch (dtype) {
    case DType::kBool: return integer(1);
    case DType::kInt8: return integer(8);
    case DType::kInt16: return integer(16);
    case DType::kInt32: return integer(32);
    case DType::kInt64: return integer(64);
    case DType::kUInt8: return unsignedInteger(8);
    case DType::kUInt16: return unsignedInteger(16);
    case DType::kUInt32: return unsignedInteger(32);
    case DType::kUInt64: return unsignedInteger(64);
    case DType::kFloat16: return mlir::Float16Type::get(context);
    case DType::kBFloat16: return mlir::BFloat16Type::get(context);
    case DType::kFloat32: return mlir::Float32Type::get(context);
    case DType::kFloat64: return mlir::Float64Type::get(context);
    case DType::kFloat8E4M3FN: return mlir::Float8E4M3FNType::get(context);
    case DType::kFloat8E5M2: return mlir::Float8E5M2Type::get(context);
    case DType::kFloat8E4M3FNUZ: return mlir::Float8E4M3FNUZType::get(context);
    case DType::kFloat8E5M2FNUZ: return mlir::Float8E5M2FNUZType::get(context);
    case DType::kFloat8E8M0FNU: return mlir::Float8E8M0FNUType::get(context);
    case DType::kComplex64: return mlir::ComplexType::get(mlir::Float32Type::get(context));
    case DType::kComplex128: return mlir::ComplexType::get(mlir::Float64Type::get(context));
  }
  return {};
}

Result<DType> dtypeOf(mlir::Type element) {
  for (int value = 0; value <= static_cast<int>(DType::kComplex128); ++value) {
    auto dtype = static_cast<DType>(value);
    if (elementType(element.getContext(), dtype) == element) return dtype;
  }
  return type_error("element type has no dtype");
}

}  // namespace qx::mfuse
