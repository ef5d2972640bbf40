#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/transforms/norm_parts.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_FUSELAYERNORM
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

using mfuse::BinaryKind;
using mfuse::UnaryKind;

// The variance of `x`: mfuse.variance, or the mean of the squares of `centred`.
struct Variance {
  llvm::SmallVector<int64_t> dims;
  bool keepdim = false;
  double correction = 0;
  mlir::Value of;
  bool bySquares = false;
};

std::optional<Variance> matchVariance(Match& match, mlir::Value value) {
  if (auto op = match.take<mfuse::VarianceOp>(value)) {
    return Variance{llvm::to_vector(op.getDims()), op.getKeepdim(), op.getCorrection().convertToDouble(), op.getInput(),
                    false};
  }
  std::optional<Mean> mean = matchMean(match, value);
  mlir::Value centred = mean ? matchSquare(match, mean->input) : mlir::Value();
  if (!centred || !mean->rightCount) return std::nullopt;
  return Variance{mean->dims, mean->keepdim, 0.0, centred, true};
}

bool isTrailing(llvm::ArrayRef<int64_t> dims, int64_t rank) {
  for (auto [index, dim] : llvm::enumerate(dims)) {
    if (dim != rank - static_cast<int64_t>(dims.size()) + static_cast<int64_t>(index)) return false;
  }
  return !dims.empty();
}

struct LayerNormPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    Match match("layer_norm", root);
    bool outside = false;
    double eps = 0;
    mlir::Value inner;
    Normalized normalized = matchNormalized(match, root);
    if (normalized.radicand) {
      if (!matchEpsilon(match, normalized.radicand, inner, eps)) return mlir::failure();
    } else if (root.getKind() == BinaryKind::div && tensorTypeOf(root.getLhs())) {
      mlir::Value deviation = match.withNumber(root.getRhs(), BinaryKind::add, eps);
      inner = deviation ? match.unary(deviation, UnaryKind::sqrt) : mlir::Value();
      normalized.numerator = root.getLhs();
      outside = true;
    }
    std::optional<Variance> variance = inner ? matchVariance(match, inner) : std::nullopt;
    mlir::Value x, mean;
    if (!variance || !match.binary(normalized.numerator, BinaryKind::sub, x, mean)) return mlir::failure();
    std::optional<Mean> average = tensorTypeOf(mean) ? matchMean(match, mean) : std::nullopt;
    if (!average) return mlir::failure();
    return check(match, root, x, *average, *variance, eps, outside, normalized.numerator, rewriter);
  }

 private:
  static mlir::LogicalResult check(Match& match, mfuse::BinaryOp root, mlir::Value x, const Mean& mean,
                                   const Variance& variance, double eps, bool outside, mlir::Value numerator,
                                   mlir::PatternRewriter& rewriter) {
    auto type = tensorTypeOf(x);
    if (mean.input != x) return match.reject("the mean is of another tensor");
    // The mean of x's own squares is no variance; shifting x changes none.
    bool ofOperand = variance.of == x && !variance.bySquares;
    if (!ofOperand && variance.of != numerator) return match.reject("the variance is of another tensor");
    if (!type || type != root.getType()) return match.reject("the operand's type is not the result's");
    if (mean.dims != variance.dims) return match.reject("mean and variance are over different dims");
    if (!isTrailing(mean.dims, type.getRank())) return match.reject("the dims are not the last ones");
    if (!mean.keepdim || !variance.keepdim) return match.reject("mean or variance does not keep its dims");
    if (!mean.rightCount) return match.reject("the sum is divided by another number than the count");
    if (variance.correction != 0.0 && variance.correction != 1.0)
      return match.reject("a correction other than 0 and 1");
    if (!(eps >= 0.0)) return match.reject("eps is negative");
    bool saves = false;
    if (mlir::failed(match.guard({}, &saves))) return mlir::failure();
    match.accept();
    // It would be stated in these operations again: they stay, with the results that training saves.
    if (saves) return mlir::failure();
    rewriter.replaceOp(root, mfuse::LayerNormOp::create(rewriter, match.location({root}), type, x, mlir::Value(),
                                                        mlir::Value(), mean.dims.size(), llvm::APFloat(eps),
                                                        llvm::APFloat(variance.correction), outside));
    return mlir::success();
  }
};

// layer_norm(x) * weight, and layer_norm(x) + bias
struct LayerNormParameterPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    bool isWeight = root.getKind() == BinaryKind::mul;
    if (!isWeight && root.getKind() != BinaryKind::add) return mlir::failure();
    for (auto [value, other] : {std::pair(root.getLhs(), root.getRhs()), std::pair(root.getRhs(), root.getLhs())}) {
      Match match("layer_norm", root);
      auto norm = match.take<mfuse::LayerNormOp>(value);
      if (!norm || norm.getBias() || (isWeight && norm.getWeight()) || !tensorTypeOf(other)) continue;
      if (root.getType() != norm.getType()) return match.reject("the parameter changes the shape");
      mlir::Value parameter = parameterOf(other, norm.getType(), static_cast<int64_t>(norm.getNumDims()));
      if (!parameter) return match.reject("the other operand is not a parameter of the normalised dims");
      if (mlir::failed(match.guard())) return mlir::failure();
      match.accept();
      rewriter.replaceOp(root, mfuse::LayerNormOp::create(rewriter, match.location({root}), norm.getType(),
                                                          norm.getInput(), isWeight ? parameter : norm.getWeight(),
                                                          isWeight ? mlir::Value() : parameter, norm.getNumDims(),
                                                          norm.getEps(), norm.getCorrection(), norm.getEpsOutside()));
      return mlir::success();
    }
    return mlir::failure();
  }
};

struct FuseLayerNorm : impl::FuseLayerNormBase<FuseLayerNorm> {
  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    patterns.add<LayerNormPattern, LayerNormParameterPattern>(&getContext());
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
