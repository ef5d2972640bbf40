#include "mlir/IR/Dominance.h"
#include "quincunx/compiler/transforms/match.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_FUSEADDRMSNORM
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

struct AddRmsNormPattern : mlir::OpRewritePattern<mfuse::RmsNormOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::RmsNormOp root, mlir::PatternRewriter& rewriter) const override {
    Match match("add_rms_norm", root);
    mlir::Value lhs, rhs;
    mlir::Value sum = root.getInput();
    if (!match.binary(sum, mfuse::BinaryKind::add, lhs, rhs)) return mlir::failure();
    if (lhs.getType() != root.getType() || rhs.getType() != root.getType()) {
      return match.reject("the sum broadcasts or adds a scalar");
    }
    mlir::Operation* add = sum.getDefiningOp();
    mlir::Operation* weight = root.getWeight() ? root.getWeight().getDefiningOp() : nullptr;
    // Both results appear where the sum was, for its other users.
    if (weight && (weight->getBlock() != add->getBlock() || !weight->isBeforeInBlock(add))) {
      return match.reject("the weight is made after the sum");
    }
    if (mlir::failed(match.guard({add}))) return mlir::failure();
    match.accept();
    rewriter.setInsertionPointAfter(add);
    auto fused = mfuse::AddRmsNormOp::create(rewriter, match.location({root, sum}), root.getType(), root.getType(), lhs,
                                             rhs, root.getWeight(), root.getEps());
    rewriter.replaceAllUsesWith(sum, fused.getSum());
    rewriter.replaceOp(root, fused.getResult());
    return mlir::success();
  }
};

struct FuseAddRmsNorm : impl::FuseAddRmsNormBase<FuseAddRmsNorm> {
  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    patterns.add<AddRmsNormPattern>(&getContext());
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
