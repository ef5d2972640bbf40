#include "quincunx/compiler/transforms/match.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_FUSESOFTMAX
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

using mfuse::BinaryKind;
using mfuse::ReduceKind;
using mfuse::UnaryKind;

struct SoftmaxPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    Match match("softmax", root);
    mfuse::ReduceOp sum;
    mlir::Value exponential;
    bool logarithm = root.getKind() == BinaryKind::sub;
    if (root.getKind() == BinaryKind::div) {
      exponential = root.getLhs();
      sum = match.take<mfuse::ReduceOp>(root.getRhs());
    } else if (logarithm) {
      mlir::Value summed = match.unary(root.getRhs(), UnaryKind::log);
      if (summed) sum = match.take<mfuse::ReduceOp>(summed);
      if (sum) exponential = sum.getInput();
    }
    if (!sum || sum.getKind() != ReduceKind::sum || sum.getInput() != exponential) return mlir::failure();
    mlir::Value shifted = match.unary(exponential, UnaryKind::exp);
    if (!shifted || (logarithm && shifted != root.getLhs())) return mlir::failure();
    return matchShift(match, root, sum, shifted, rewriter);
  }

 private:
  static mlir::LogicalResult matchShift(Match& match, mfuse::BinaryOp root, mfuse::ReduceOp sum, mlir::Value shifted,
                                        mlir::PatternRewriter& rewriter) {
    mlir::Value x, largest;
    mfuse::ReduceOp max;
    if (match.binary(shifted, BinaryKind::sub, x, largest)) max = match.take<mfuse::ReduceOp>(largest);
    if (!max || max.getKind() != ReduceKind::max || max.getInput() != x) {
      return match.reject("no maximum of the operand is subtracted");
    }
    if (sum.getDims().size() != 1) return match.reject("a sum over several dims");
    if (max.getDims() != sum.getDims()) return match.reject("the maximum and the sum are over different dims");
    if (!sum.getKeepdim() || !max.getKeepdim()) return match.reject("a reduction does not keep its dim");
    if (tensorTypeOf(x) != root.getType()) return match.reject("the operand's type is not the result's");
    if (mlir::failed(match.guard())) return mlir::failure();
    match.accept();
    rewriter.replaceOp(root, mfuse::SoftmaxOp::create(rewriter, match.location({root}), root.getType(), x,
                                                      static_cast<uint64_t>(sum.getDims().front()),
                                                      root.getKind() == BinaryKind::sub));
    return mlir::success();
  }
};

struct FuseSoftmax : impl::FuseSoftmaxBase<FuseSoftmax> {
  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    patterns.add<SoftmaxPattern>(&getContext());
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
