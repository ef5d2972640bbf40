#include "quincunx/compiler/dialect/weights.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "quincunx/compiler/dialect/origin.h"

namespace qx::mfuse {
namespace {

constexpr const char* kAttribute = "mfuse.weight";

}  // namespace

void markWeights(mlir::ModuleOp module, llvm::ArrayRef<int64_t> values) {
  for (auto function : module.getOps<mlir::func::FuncOp>()) {
    for (mlir::BlockArgument argument : function.getArguments()) {
      if (!llvm::is_contained(values, sourceValue(argument))) continue;
      function.setArgAttr(argument.getArgNumber(), kAttribute, mlir::UnitAttr::get(module.getContext()));
    }
  }
}

bool isWeight(mlir::Value value) {
  if (value.getDefiningOp<WeightOp>()) return true;
  auto argument = llvm::dyn_cast<mlir::BlockArgument>(value);
  auto function = argument ? llvm::dyn_cast<mlir::func::FuncOp>(argument.getOwner()->getParentOp()) : nullptr;
  return function && function.getArgAttr(argument.getArgNumber(), kAttribute);
}

bool isWeightProduct(MatmulOp product) {
  mlir::Value rhs = product.getRhs();
  if (!product.getType().getElementType().isF32() || product.getRhs().getType().getRank() != 2) return false;
  if (auto permute = rhs.getDefiningOp<PermuteOp>()) rhs = permute.getInput();
  return isWeight(rhs);
}

}  // namespace qx::mfuse
