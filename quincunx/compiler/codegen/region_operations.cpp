#include "quincunx/compiler/codegen/region_operations.h"

#include "llvm/ADT/SmallVector.h"
#include "quincunx/compiler/codegen/elementwise_lowering.h"
#include "quincunx/compiler/codegen/place.h"
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/dialect/shapes.h"

namespace qx::compiler {
namespace mf = qx::mfuse;
using graph::Dim;

namespace {

bool isSupportedDType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64: return true;
    default: return false;
  }
}

}  // namespace

std::optional<Dim> dimOf(mlir::AffineExpr expression) {
  if (!expression) return std::nullopt;
  if (auto constant = llvm::dyn_cast<mlir::AffineConstantExpr>(expression)) return Dim{.value = constant.getValue()};
  if (auto symbol = llvm::dyn_cast<mlir::AffineSymbolExpr>(expression)) {
    return Dim{.value = 0, .multiplier = 1, .symbol = static_cast<int32_t>(symbol.getPosition())};
  }
  const auto binary = llvm::dyn_cast<mlir::AffineBinaryOpExpr>(expression);
  if (!binary) return std::nullopt;
  const auto left = dimOf(binary.getLHS());
  const auto right = dimOf(binary.getRHS());
  if (!left || !right) return std::nullopt;
  if (binary.getKind() == mlir::AffineExprKind::Mul) return multiply(*left, *right);
  if (binary.getKind() != mlir::AffineExprKind::Add || (!left->is_known() && !right->is_known())) return std::nullopt;
  Dim sum = left->is_known() ? *right : *left;
  sum.value += left->is_known() ? left->value : right->value;
  return sum;
}

std::optional<Shape> shapeOf(mlir::Value value) {
  Shape shape;
  for (const mlir::AffineExpr size : mf::dimSizes(llvm::cast<mlir::RankedTensorType>(value.getType()))) {
    const auto dim = dimOf(size);
    if (!dim) return std::nullopt;
    shape.push_back(*dim);
  }
  return shape;
}

bool isElementwise(mlir::Operation* op) {
  return llvm::isa<mf::UnaryOp, mf::BinaryOp, mf::CompareOp, mf::SelectOp, mf::CastOp>(op);
}

llvm::ArrayRef<int64_t> reducedDims(mlir::Operation* op) {
  if (auto reduce = llvm::dyn_cast<mf::ReduceOp>(op)) return reduce.getDims();
  if (auto variance = llvm::dyn_cast<mf::VarianceOp>(op)) return variance.getDims();
  return {};
}

bool keepsDims(mlir::Operation* op) {
  if (auto reduce = llvm::dyn_cast<mf::ReduceOp>(op)) return reduce.getKeepdim();
  return llvm::cast<mf::VarianceOp>(op).getKeepdim();
}

bool isReduce(mlir::Operation* op) { return llvm::isa<mf::ReduceOp, mf::VarianceOp>(op); }

bool isNumber(mlir::Operation* op) {
  if (llvm::isa<mf::ScalarOp, mf::SizeOp, mf::FullOp>(op)) return true;
  return llvm::isa<mf::ConstantOp>(op) && uniformNumber(op->getResult(0)).has_value();
}

Status canLower(mlir::Operation* op) {
  const std::string name = op->getName().getStringRef().str();
  const bool rearranges = llvm::isa<mf::ReshapeOp, mf::PermuteOp, mf::BroadcastOp, mf::SliceOp, mf::CatOp>(op);
  if (auto opaque = llvm::dyn_cast<mf::OpaqueOp>(op)) {
    return unimplemented(opaque.getName().str() + " is not modelled with these arguments");
  }
  if (!rearranges && !isElementwise(op) && !isReduce(op)) {
    return unimplemented(name + " is no elementwise operator, reduction or view");
  }
  llvm::SmallVector<mlir::Value> tensors(op->getOperands());
  tensors.append(op->result_begin(), op->result_end());
  for (const mlir::Value value : tensors) {
    const auto type = llvm::dyn_cast<mlir::RankedTensorType>(value.getType());
    if (!type) continue;
    const auto dtype = mf::dtypeOf(type.getElementType());
    if (!dtype.ok() || !isSupportedDType(*dtype)) return unimplemented(name + " of a dtype without loops");
    if (type.getRank() > LoopProgram::kMaxAxes) return unimplemented(name + " of more than 8 dims");
    if (!shapeOf(value)) return unimplemented(name + ": a size is not affine in one symbol");
  }
  return isElementwise(op) ? canLowerElementwise(op) : ok_status();
}

}  // namespace qx::compiler
