#include "quincunx/compiler/codegen/product_lowering.h"

#include <algorithm>

#include "quincunx/compiler/codegen/elementwise_lowering.h"
#include "quincunx/compiler/codegen/region_operations.h"
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/dialect/weights.h"

namespace qx::compiler {
namespace mf = qx::mfuse;
namespace {

std::optional<kernels::Activation> activationOf(mf::MatmulOp product) {
  if (!product.getActivation()) return kernels::Activation::kNone;
  switch (*product.getActivation()) {
    case mf::UnaryKind::relu: return kernels::Activation::kRelu;
    case mf::UnaryKind::silu: return kernels::Activation::kSilu;
    case mf::UnaryKind::gelu_erf: return kernels::Activation::kGeluErf;
    case mf::UnaryKind::gelu_tanh: return kernels::Activation::kGeluTanh;
    default: return std::nullopt;
  }
}

class ProductLowering {
 public:
  explicit ProductLowering(llvm::ArrayRef<mlir::Operation*> ops) : ops_(ops) {}

  Result<LoweredProduct> lower() {
    QX_RETURN_IF_ERROR(findProduct());
    for (mlir::Operation* op : ops_) QX_RETURN_IF_ERROR(checkReshape(op));
    ProductProgram& program = lowered_.program;
    QX_ASSIGN_OR_RETURN(program.lhs, input(product_.getLhs()));
    // A transpose that others read as well stays in the source; what it is made of is read here.
    auto permute = product_.getRhs().getDefiningOp<mf::PermuteOp>();
    QX_ASSIGN_OR_RETURN(program.weight, input(permute ? permute.getInput() : product_.getRhs()));
    QX_ASSIGN_OR_RETURN(program.bias, input(product_.getBias()));
    QX_ASSIGN_OR_RETURN(program.multiplier, input(product_.getMultiplier()));
    QX_ASSIGN_OR_RETURN(program.residual, input(product_.getResidual()));
    program.transpose_lhs = product_.getTransposeLhs();
    const bool swaps = permute && permute.getPermutation()[0] == 1;
    program.transpose_weight = product_.getTransposeRhs() != swaps;
    program.activation = *activationOf(product_);
    if (product_.getScale()) program.scale = product_.getScale()->convertToDouble();
    lowered_.output = product_.getResult();
    for (mlir::Operation* op : ops_) {
      if (op->getNumOperands() == 1 && op->getOperand(0) == product_.getResult()) lowered_.output = op->getResult(0);
    }
    QX_ASSIGN_OR_RETURN(program.output, typeOf(lowered_.output));
    return std::move(lowered_);
  }

 private:
  Status findProduct() {
    for (mlir::Operation* op : ops_) {
      auto product = llvm::dyn_cast<mf::MatmulOp>(op);
      if (!product) continue;
      if (product_) return unimplemented("two matrix products in one region");
      product_ = product;
    }
    if (!product_) return unimplemented("no matrix product");
    return canLowerProduct(product_);
  }

  // Reshapes that stand in the source cost nothing where they are.
  Status checkReshape(mlir::Operation* op) {
    if (op == product_.getOperation()) return ok_status();
    const bool follows = llvm::isa<mf::ReshapeOp>(op) && op->getOperand(0) == product_.getResult() &&
                         mf::sourceValue(product_.getResult()) < 0;
    const bool precedes = llvm::isa<mf::ReshapeOp>(op) && mf::sourceValue(op->getResult(0)) < 0 &&
                          (op->getResult(0) == product_.getMultiplier() || op->getResult(0) == product_.getResidual());
    return follows || precedes ? ok_status()
                               : unimplemented("a matrix product and operations that it does not take in");
  }

  Result<graph::TensorType> typeOf(mlir::Value value) const {
    const auto shape = shapeOf(value);
    if (!shape) return unimplemented("a size is not affine in one symbol");
    return graph::TensorType{elementDType(value.getType()), *shape};
  }

  // The position of a tensor that the kernel reads, -1 for a missing one.
  Result<int32_t> input(mlir::Value value) {
    if (!value) return -1;
    mlir::Operation* const op = value.getDefiningOp();
    if (op != nullptr && llvm::is_contained(ops_, op)) value = op->getOperand(0);
    const auto found = llvm::find(lowered_.inputs, value);
    if (found != lowered_.inputs.end()) return static_cast<int32_t>(found - lowered_.inputs.begin());
    QX_ASSIGN_OR_RETURN(graph::TensorType type, typeOf(value));
    lowered_.program.inputs.push_back(std::move(type));
    lowered_.inputs.push_back(value);
    return static_cast<int32_t>(lowered_.inputs.size()) - 1;
  }

  llvm::ArrayRef<mlir::Operation*> ops_;
  mf::MatmulOp product_;
  LoweredProduct lowered_;
};

}  // namespace

Status canLowerProduct(mlir::Operation* op) {
  auto product = llvm::dyn_cast<mf::MatmulOp>(op);
  if (!product) return unimplemented(op->getName().getStringRef().str() + " is no matrix product");
  if (!product.getType().getElementType().isF32()) return unimplemented("a matrix product of another dtype than f32");
  if (!mf::isWeightProduct(product)) {
    return unimplemented("a matrix product whose right operand is no weight");
  }
  if (!activationOf(product)) {
    return unimplemented("a matrix product with the activation " +
                         mf::stringifyUnaryKind(*product.getActivation()).str());
  }
  return ok_status();
}

Result<LoweredProduct> lowerProduct(llvm::ArrayRef<mlir::Operation*> ops) { return ProductLowering(ops).lower(); }

}  // namespace qx::compiler
