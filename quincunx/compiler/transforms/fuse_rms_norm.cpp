#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/transforms/norm_parts.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_FUSERMSNORM
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

using mfuse::BinaryKind;

// x * rsqrt(mean(x^2) + eps)
struct RmsNormPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    Match match("rms_norm", root);
    Normalized normalized = matchNormalized(match, root);
    mlir::Value inner;
    double eps = 0;
    if (!normalized.radicand || !matchEpsilon(match, normalized.radicand, inner, eps)) return mlir::failure();
    std::optional<Mean> mean = matchMean(match, inner);
    mlir::Value x = mean ? matchSquare(match, mean->input) : mlir::Value();
    if (!x) return mlir::failure();
    // A layer norm's numerator is centred as well: the mean of the squares is then its variance.
    if (x != normalized.numerator) return match.reject("the squares are of another tensor than the one that is scaled");
    auto type = tensorTypeOf(x);
    if (!llvm::isa<mlir::FloatType>(type.getElementType()) || type != root.getType()) {
      return match.reject("the operand's type is not the result's");
    }
    if (mean->dims.size() != 1 || mean->dims.front() != type.getRank() - 1)
      return match.reject("the mean is not over the last dim alone");
    if (!mean->keepdim) return match.reject("the mean does not keep its dim");
    if (!mean->rightCount) return match.reject("the sum is divided by another number than the last dim's size");
    if (!(eps >= 0.0)) return match.reject("eps is negative");
    bool saves = false;
    if (mlir::failed(match.guard({}, &saves))) return mlir::failure();
    match.accept();
    // It would be stated in these operations again: they stay, with the results that training saves.
    if (saves) return mlir::failure();
    rewriter.replaceOp(
        root, mfuse::RmsNormOp::create(rewriter, match.location({root}), type, x, mlir::Value(), llvm::APFloat(eps)));
    return mlir::success();
  }
};

// rms_norm(x) * weight
struct RmsNormWeightPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    if (root.getKind() != BinaryKind::mul) return mlir::failure();
    for (auto [value, factor] : {std::pair(root.getLhs(), root.getRhs()), std::pair(root.getRhs(), root.getLhs())}) {
      Match match("rms_norm", root);
      auto norm = match.take<mfuse::RmsNormOp>(value);
      if (!norm || norm.getWeight() || !tensorTypeOf(factor)) continue;
      if (root.getType() != norm.getType()) return match.reject("the weight changes the shape");
      mlir::Value weight = parameterOf(factor, norm.getType(), 1);
      if (!weight) return match.reject("the factor is not a weight of the last dim");
      if (mlir::failed(match.guard())) return mlir::failure();
      match.accept();
      rewriter.replaceOp(root, mfuse::RmsNormOp::create(rewriter, match.location({root}), norm.getType(),
                                                        norm.getInput(), weight, norm.getEps()));
      return mlir::success();
    }
    return mlir::failure();
  }
};

// cast(rms_norm(cast(x))): the norm of x computes in f32 anyway.
struct RmsNormCastPattern : mlir::OpRewritePattern<mfuse::CastOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::CastOp root, mlir::PatternRewriter& rewriter) const override {
    Match match("rms_norm", root);
    auto norm = match.take<mfuse::RmsNormOp>(root.getInput());
    auto inner = norm ? match.take<mfuse::CastOp>(norm.getInput()) : mfuse::CastOp();
    if (!inner || !norm.getType().getElementType().isF32()) return mlir::failure();
    auto type = inner.getInput().getType();
    mlir::Value weight = norm.getWeight();
    if (auto cast = weight ? match.take<mfuse::CastOp>(weight) : mfuse::CastOp()) weight = cast.getInput();
    if (type != root.getType() || !llvm::isa<mlir::FloatType>(type.getElementType())) {
      return match.reject("the casts before and after differ");
    }
    if (weight && tensorTypeOf(weight).getElementType() != type.getElementType())
      return match.reject("the weight stays f32");
    // The operand's cast and the weight's may serve others too; they are cheap to leave.
    llvm::SmallVector<mlir::Operation*> shared = {inner};
    if (weight != norm.getWeight()) shared.push_back(norm.getWeight().getDefiningOp());
    if (mlir::failed(match.guard(shared))) return mlir::failure();
    match.accept();
    rewriter.replaceOp(root, mfuse::RmsNormOp::create(rewriter, match.location({root}), type, inner.getInput(), weight,
                                                      norm.getEps()));
    return mlir::success();
  }
};

struct FuseRmsNorm : impl::FuseRmsNormBase<FuseRmsNorm> {
  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    patterns.add<RmsNormPattern, RmsNormWeightPattern, RmsNormCastPattern>(&getContext());
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
