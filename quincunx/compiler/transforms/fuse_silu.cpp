#include "quincunx/compiler/transforms/match.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_FUSESILU
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

using mfuse::BinaryKind;
using mfuse::UnaryKind;

// 1 + exp(-z): gives z.
mlir::Value onePlusExpOfMinus(Match& match, mlir::Value value) {
  double one = 0;
  mlir::Value exponential = match.withNumber(value, BinaryKind::add, one);
  mlir::Value negative = exponential && one == 1.0 ? match.unary(exponential, UnaryKind::exp) : mlir::Value();
  return negative ? match.unary(negative, UnaryKind::neg) : mlir::Value();
}

// sigmoid(z) in any spelling: gives z.
mlir::Value sigmoid(Match& match, mlir::Value value) {
  size_t start = match.mark();
  if (mlir::Value z = match.unary(value, UnaryKind::sigmoid)) return z;
  mlir::Value lhs, denominator;
  if ((denominator = match.unary(value, UnaryKind::reciprocal))) {
    if (mlir::Value z = onePlusExpOfMinus(match, denominator)) return z;
  } else if (match.binary(value, BinaryKind::div, lhs, denominator) && isNumber(lhs, 1.0)) {
    if (mlir::Value z = onePlusExpOfMinus(match, denominator)) return z;
  }
  match.rewind(start);
  return {};
}

struct SiluPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    Match match("silu", root);
    mlir::Value x = root.getLhs(), z;
    if (root.getKind() == BinaryKind::mul) {
      z = sigmoid(match, root.getRhs());
      if (!z) {
        x = root.getRhs();
        z = sigmoid(match, root.getLhs());
      }
    } else if (root.getKind() == BinaryKind::div && tensorTypeOf(x)) {
      z = onePlusExpOfMinus(match, root.getRhs());
    }
    if (!z) return mlir::failure();
    double factor = 0;
    // x * sigmoid(1.702 x) is gelu's, and a gate of another tensor is no activation.
    if (z != x) {
      Match other("silu", root);
      if (other.withNumber(z, BinaryKind::mul, factor) != x) return mlir::failure();
      if (isClose(factor, 1.702)) return mlir::failure();
      return match.reject("sigmoid of " + std::to_string(factor) + " x, expected of x");
    }
    if (tensorTypeOf(x) != root.getType()) return match.reject("the operand's type is not the result's");
    if (mlir::failed(match.guard())) return mlir::failure();
    match.accept();
    auto fused = mfuse::UnaryOp::create(rewriter, match.location({root}), root.getType(), UnaryKind::silu, x);
    rewriter.replaceOp(root, fused);
    return mlir::success();
  }
};

struct FuseSilu : impl::FuseSiluBase<FuseSilu> {
  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    patterns.add<SiluPattern>(&getContext());
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
