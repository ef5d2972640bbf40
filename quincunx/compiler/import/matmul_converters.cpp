// Matrix products. Shapes that mfuse.matmul refuses (vectors, broadcast batches) are left alone.
#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/import/converters.h"

namespace qx::compiler {
namespace {

using mfuse::BinaryKind;

mlir::RankedTensorType typeOf(mlir::Value value) { return llvm::cast<mlir::RankedTensorType>(value.getType()); }

// lhs @ rhs, or lhs @ rhs^T; null if the operation's constraints do not hold.
mlir::Value matmul(NodeImporter& node, mlir::Value lhs, mlir::Value rhs, mlir::Value bias, bool transposed) {
  auto type = node.resultType(0);
  if (!lhs || !rhs || !type) return {};
  int64_t rank = typeOf(lhs).getRank(), rhsRank = typeOf(rhs).getRank();
  if (rank < 2 || rhsRank < 2 || (rhsRank != 2 && rhsRank != rank) || type.getRank() != rank) return {};
  for (mlir::Value operand : {lhs, rhs, bias}) {
    if (operand && typeOf(operand).getElementType() != type.getElementType()) return {};
  }
  if (!llvm::isa<mlir::FloatType>(type.getElementType())) return {};
  for (int64_t dim = 0; rhsRank != 2 && dim < rank - 2; ++dim) {
    if (mfuse::dimSize(typeOf(lhs), dim) != mfuse::dimSize(typeOf(rhs), dim)) return {};
  }
  return mfuse::MatmulOp::create(node.builder(), node.location(), type, lhs, rhs, bias, mlir::Value(), mlir::Value(),
                                 false, transposed, mfuse::UnaryKindAttr(), mlir::FloatAttr());
}

bool convertLinear(NodeImporter& node) {
  mlir::Value bias = node.tensor(2);
  if (bias && typeOf(bias).getRank() != 1) return false;
  return node.finish(0, matmul(node, node.tensor(0), node.tensor(1), bias, true));
}

// addmm and baddbmm: self + mat1 @ mat2. Factors other than 1 are left alone.
bool convertSum(NodeImporter& node) {
  mlir::Value self = node.tensor(0);
  bool plain = (node.missing(3) || node.number(3) == 1.0) && (node.missing(4) || node.number(4) == 1.0);
  auto type = node.resultType(0);
  if (!self || !plain || !type || type.getRank() < 2) return false;
  bool isBias = typeOf(self).getRank() == 1 && typeOf(self).getDimSize(0) == type.getDimSize(type.getRank() - 1);
  mlir::Value product = matmul(node, node.tensor(1), node.tensor(2), isBias ? self : mlir::Value(), false);
  if (!product || typeOf(self).getElementType() != type.getElementType()) return false;
  if (isBias) return node.finish(0, product);
  if (typeOf(self) == type) {
    product.getDefiningOp<mfuse::MatmulOp>().getResidualMutable().assign(self);
    return node.finish(0, product);
  }
  // Rounding the product first would not be what addmm does in half precision.
  return typeOf(self).getElementTypeBitWidth() >= 32 && node.finish(0, node.binary(BinaryKind::add, product, self));
}

}  // namespace

void addMatmulConverters(ConverterTable& table) {
  for (const char* name : {"aten.mm.default", "aten.bmm.default", "aten.matmul.default"}) {
    table[name] = [](NodeImporter& n) {
      return n.finish(0, matmul(n, n.tensor(0), n.tensor(1), mlir::Value(), false));
    };
  }
  table["aten.linear.default"] = convertLinear;
  table["aten.addmm.default"] = convertSum;
  table["aten.baddbmm.default"] = convertSum;
}

}  // namespace qx::compiler
