#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/transforms/norm_parts.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_FUSEMATMULEPILOGUE
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

using mfuse::BinaryKind;
using mfuse::MatmulOp;

// The product that `value` is, perhaps under another shape with the same columns.
MatmulOp matchProduct(Match& match, mlir::Value value) {
  size_t start = match.mark();
  if (auto reshape = match.take<mfuse::ReshapeOp>(value)) {
    auto outer = reshape.getType(), inner = reshape.getInput().getType();
    mlir::AffineExpr columns = outer.getRank() > 0 ? mfuse::dimSize(outer, outer.getRank() - 1) : mlir::AffineExpr();
    bool keepsColumns = columns && inner.getRank() > 0 && columns == mfuse::dimSize(inner, inner.getRank() - 1);
    value = keepsColumns ? mlir::Value(reshape.getInput()) : mlir::Value();
  }
  auto product = value ? match.take<MatmulOp>(value) : MatmulOp();
  if (!product) match.rewind(start);
  return product;
}

struct Epilogue {
  mlir::Value bias;
  mfuse::UnaryKindAttr activation;
  mlir::Value residual;
};

// Puts the product with its new epilogue in the place of `root`, under root's shape.
void replace(Match& match, mlir::Operation* root, MatmulOp product, Epilogue epilogue,
             mlir::PatternRewriter& rewriter) {
  mlir::Value result = root->getResult(0);
  auto type = product.getType();
  bool reshaped = result.getType() != type;
  if (epilogue.residual && reshaped) {
    epilogue.residual = mfuse::ReshapeOp::create(rewriter, mfuse::innerOrigin(root), type, epilogue.residual);
  }
  mlir::Value fused = MatmulOp::create(rewriter, match.location({reshaped ? mlir::Value() : result}), type,
                                       product.getLhs(), product.getRhs(), epilogue.bias, epilogue.residual,
                                       product.getTransposeLhs(), product.getTransposeRhs(), epilogue.activation);
  if (reshaped) fused = mfuse::ReshapeOp::create(rewriter, match.location({result}), result.getType(), fused);
  match.accept();
  rewriter.replaceOp(root, fused);
}

struct ActivationPattern : mlir::OpRewritePattern<mfuse::UnaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::UnaryOp root, mlir::PatternRewriter& rewriter) const override {
    Match match("matmul_epilogue", root);
    MatmulOp product = matchProduct(match, root.getInput());
    if (!product) return mlir::failure();
    if (!mfuse::isMatmulActivation(root.getKind())) {
      return match.reject(mfuse::stringifyUnaryKind(root.getKind()) + " is no activation");
    }
    if (product.getActivation() || product.getResidual())
      return match.reject("the product has an activation or a residual");
    if (mlir::failed(match.guard())) return mlir::failure();
    replace(match, root, product, {product.getBias(), root.getKindAttr(), {}}, rewriter);
    return mlir::success();
  }
};

struct SumPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    if (root.getKind() != BinaryKind::add) return mlir::failure();
    for (auto [value, other] : {std::pair(root.getLhs(), root.getRhs()), std::pair(root.getRhs(), root.getLhs())}) {
      Match match("matmul_epilogue", root);
      MatmulOp product = tensorTypeOf(value) ? matchProduct(match, value) : MatmulOp();
      if (!product) continue;
      if (!tensorTypeOf(other)) return match.reject("a scalar is added");
      if (value.getType() != root.getType()) return match.reject("the sum broadcasts the product");
      mlir::Value bias = parameterOf(other, product.getType(), 1);
      if (bias && (product.getBias() || product.getActivation() || product.getResidual())) {
        return match.reject("the product has an epilogue");
      }
      if (!bias && other.getType() != root.getType())
        return match.reject("neither a bias of the columns nor of the result's type");
      if (!bias && product.getResidual()) return match.reject("the product has a residual");
      if (mlir::failed(match.guard())) return mlir::failure();
      if (bias) {
        replace(match, root, product, {bias, {}, {}}, rewriter);
      } else {
        replace(match, root, product, {product.getBias(), product.getActivationAttr(), other}, rewriter);
      }
      return mlir::success();
    }
    return mlir::failure();
  }
};

bool swapsLastTwo(mfuse::PermuteOp permute) {
  llvm::ArrayRef<int64_t> order = permute.getPermutation();
  auto rank = static_cast<int64_t>(order.size());
  for (int64_t dim = 0; dim < rank - 2; ++dim) {
    if (order[static_cast<size_t>(dim)] != dim) return false;
  }
  return rank >= 2 && order[static_cast<size_t>(rank - 1)] == rank - 2;
}

struct TransposePattern : mlir::OpRewritePattern<MatmulOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(MatmulOp root, mlir::PatternRewriter& rewriter) const override {
    Match match("matmul_epilogue", root);
    llvm::SmallVector<mlir::Operation*> permutes;
    mlir::Value operands[2] = {root.getLhs(), root.getRhs()};
    bool transposed[2] = {root.getTransposeLhs(), root.getTransposeRhs()};
    for (int side = 0; side < 2; ++side) {
      auto permute = operands[side].getDefiningOp<mfuse::PermuteOp>();
      if (!permute || !swapsLastTwo(permute)) continue;
      permutes.push_back(match.take<mfuse::PermuteOp>(operands[side]));
      operands[side] = permute.getInput();
      transposed[side] = !transposed[side];
    }
    // A permute that others read as well stays for them.
    if (permutes.empty() || mlir::failed(match.guard(permutes))) return mlir::failure();
    match.accept();
    rewriter.replaceOp(root, MatmulOp::create(rewriter, match.location({root.getResult()}), root.getType(), operands[0],
                                              operands[1], root.getBias(), root.getResidual(), transposed[0],
                                              transposed[1], root.getActivationAttr()));
    return mlir::success();
  }
};

struct FuseMatmulEpilogue : impl::FuseMatmulEpilogueBase<FuseMatmulEpilogue> {
  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    patterns.add<ActivationPattern, SumPattern, TransposePattern>(&getContext());
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
