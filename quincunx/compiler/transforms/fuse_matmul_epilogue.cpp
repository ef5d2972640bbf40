#include <cmath>

#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/dialect/weights.h"
#include "quincunx/compiler/transforms/norm_parts.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_FUSEMATMULEPILOGUE
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

using mfuse::BinaryKind;
using mfuse::MatmulOp;
using mfuse::UnaryKind;

// What is done to the sums, in this order.
struct Epilogue {
  explicit Epilogue(MatmulOp product)
      : scale(product.getScaleAttr()),
        bias(product.getBias()),
        activation(product.getActivationAttr()),
        multiplier(product.getMultiplier()),
        residual(product.getResidual()) {}

  // Nothing after the bias.
  bool endsWithBias() const { return !activation && !multiplier && !residual; }
  bool isEmpty() const { return !scale && !bias && endsWithBias(); }

  mlir::FloatAttr scale;
  mlir::Value bias;
  mfuse::UnaryKindAttr activation;
  mlir::Value multiplier;
  mlir::Value residual;
};

template <typename Op>
class ProductPattern : public mlir::OpRewritePattern<Op> {
 public:
  ProductPattern(mlir::MLIRContext* context, bool weights_only)
      : mlir::OpRewritePattern<Op>(context), weights_only_(weights_only) {}

 protected:
  // The product that `value` is, perhaps under another shape with the same columns.
  MatmulOp matchProduct(Match& match, mlir::Value value) const {
    size_t start = match.mark();
    if (!tensorTypeOf(value)) return {};
    if (auto reshape = match.take<mfuse::ReshapeOp>(value)) {
      auto outer = reshape.getType(), inner = reshape.getInput().getType();
      mlir::AffineExpr columns = outer.getRank() > 0 ? mfuse::dimSize(outer, outer.getRank() - 1) : mlir::AffineExpr();
      bool keepsColumns = columns && inner.getRank() > 0 && columns == mfuse::dimSize(inner, inner.getRank() - 1);
      value = keepsColumns ? mlir::Value(reshape.getInput()) : mlir::Value();
    }
    auto product = value ? match.take<MatmulOp>(value) : MatmulOp();
    if (product && weights_only_ && !mfuse::isWeightProduct(product)) product = {};
    if (!product) match.rewind(start);
    return product;
  }

  bool takesActivation(UnaryKind kind) const {
    if (!weights_only_) return mfuse::isMatmulActivation(kind);
    return kind == UnaryKind::relu || kind == UnaryKind::silu || kind == UnaryKind::gelu_erf ||
           kind == UnaryKind::gelu_tanh;
  }

  // Puts the product with its new epilogue in the place of `root`, under root's shape.
  static mlir::LogicalResult replace(Match& match, mlir::Operation* root, MatmulOp product, Epilogue epilogue,
                                     mlir::PatternRewriter& rewriter) {
    if (mlir::failed(match.guard())) return mlir::failure();
    mlir::Value result = root->getResult(0);
    auto type = product.getType();
    bool reshaped = result.getType() != type;
    for (mlir::Value* operand : {&epilogue.multiplier, &epilogue.residual}) {
      if (*operand && operand->getType() != type) {
        *operand = mfuse::ReshapeOp::create(rewriter, mfuse::innerOrigin(root), type, *operand);
      }
    }
    mlir::Value fused =
        MatmulOp::create(rewriter, match.location({reshaped ? mlir::Value() : result}), type, product.getLhs(),
                         product.getRhs(), epilogue.bias, epilogue.multiplier, epilogue.residual,
                         product.getTransposeLhs(), product.getTransposeRhs(), epilogue.activation, epilogue.scale);
    if (reshaped) fused = mfuse::ReshapeOp::create(rewriter, match.location({result}), result.getType(), fused);
    match.accept();
    rewriter.replaceOp(root, fused);
    return mlir::success();
  }

 private:
  bool weights_only_;
};

struct ActivationPattern : ProductPattern<mfuse::UnaryOp> {
  using ProductPattern::ProductPattern;

  mlir::LogicalResult matchAndRewrite(mfuse::UnaryOp root, mlir::PatternRewriter& rewriter) const override {
    Match match("matmul_epilogue", root);
    MatmulOp product = matchProduct(match, root.getInput());
    if (!product) return mlir::failure();
    if (!takesActivation(root.getKind())) {
      return match.reject(mfuse::stringifyUnaryKind(root.getKind()) + " is no activation");
    }
    Epilogue epilogue(product);
    if (!epilogue.endsWithBias()) return match.reject("the product has an activation, a multiplier or a residual");
    epilogue.activation = root.getKindAttr();
    return replace(match, root, product, epilogue, rewriter);
  }
};

struct SumPattern : ProductPattern<mfuse::BinaryOp> {
  using ProductPattern::ProductPattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    if (root.getKind() != BinaryKind::add) return mlir::failure();
    for (auto [value, other] : {std::pair(root.getLhs(), root.getRhs()), std::pair(root.getRhs(), root.getLhs())}) {
      Match match("matmul_epilogue", root);
      MatmulOp product = matchProduct(match, value);
      if (!product) continue;
      if (!tensorTypeOf(other)) return match.reject("a scalar is added");
      if (other == value) return match.reject("the product is added to itself");
      if (value.getType() != root.getType()) return match.reject("the sum broadcasts the product");
      Epilogue epilogue(product);
      if (mlir::Value bias = parameterOf(other, product.getType(), 1)) {
        if (epilogue.bias || !epilogue.endsWithBias()) return match.reject("the product has an epilogue");
        epilogue.bias = bias;
      } else if (other.getType() != root.getType()) {
        return match.reject("neither a bias of the columns nor of the result's type");
      } else if (epilogue.residual) {
        return match.reject("the product has a residual");
      } else {
        epilogue.residual = other;
      }
      return replace(match, root, product, epilogue, rewriter);
    }
    return mlir::failure();
  }
};

// A product with a number, with a tensor of its type, or as the gate of swiglu and geglu.
struct FactorPattern : ProductPattern<mfuse::BinaryOp> {
  using ProductPattern::ProductPattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    if (root.getKind() == BinaryKind::swiglu) return gate(root, UnaryKind::silu, rewriter);
    if (root.getKind() == BinaryKind::geglu_erf) return gate(root, UnaryKind::gelu_erf, rewriter);
    if (root.getKind() == BinaryKind::geglu_tanh) return gate(root, UnaryKind::gelu_tanh, rewriter);
    if (root.getKind() != BinaryKind::mul && root.getKind() != BinaryKind::div) return mlir::failure();
    for (auto [value, other] : {std::pair(root.getLhs(), root.getRhs()), std::pair(root.getRhs(), root.getLhs())}) {
      Match match("matmul_epilogue", root);
      MatmulOp product = matchProduct(match, value);
      if (!product) continue;
      Epilogue epilogue(product);
      if (auto number = knownNumber(other)) {
        return scale(match, root, product, value == root.getLhs(), *number, rewriter);
      }
      if (root.getKind() == BinaryKind::div) return match.reject("the quotient is no product with a number");
      if (other.getType() != root.getType() || value.getType() != root.getType()) {
        return match.reject("the factor is neither a number nor of the result's type");
      }
      if (other == value) return match.reject("the product is its own factor");
      if (epilogue.multiplier || epilogue.residual) return match.reject("the product has a multiplier or a residual");
      epilogue.multiplier = other;
      return replace(match, root, product, epilogue, rewriter);
    }
    return mlir::failure();
  }

 private:
  mlir::LogicalResult scale(Match& match, mfuse::BinaryOp root, MatmulOp product, bool product_first, double number,
                            mlir::PatternRewriter& rewriter) const {
    Epilogue epilogue(product);
    if (!epilogue.isEmpty()) return match.reject("the product has an epilogue before the scale");
    if (root.getLhs().getType() != root.getType() && root.getRhs().getType() != root.getType()) {
      return match.reject("the scale broadcasts the product");
    }
    const bool divides = root.getKind() == BinaryKind::div;
    if (divides && !product_first) return match.reject("a number is divided by the product");
    // A product with a rounded reciprocal is not what a division gives.
    int exponent = 0;
    if (divides && std::abs(std::frexp(number, &exponent)) != 0.5)
      return match.reject("the divisor is no power of two");
    const double scale = divides ? 1.0 / number : number;
    epilogue.scale = rewriter.getF64FloatAttr(scale);
    return replace(match, root, product, epilogue, rewriter);
  }

  mlir::LogicalResult gate(mfuse::BinaryOp root, UnaryKind activation, mlir::PatternRewriter& rewriter) const {
    Match match("matmul_epilogue", root);
    MatmulOp product = matchProduct(match, root.getLhs());
    if (!product) return mlir::failure();
    Epilogue epilogue(product);
    if (!epilogue.endsWithBias()) return match.reject("the product has an activation, a multiplier or a residual");
    if (root.getRhs().getType() != root.getType()) return match.reject("up has not the result's type");
    if (root.getRhs() == root.getLhs()) return match.reject("the product is its own gate");
    epilogue.activation = mfuse::UnaryKindAttr::get(rewriter.getContext(), activation);
    epilogue.multiplier = root.getRhs();
    return replace(match, root, product, epilogue, rewriter);
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
  TransposePattern(mlir::MLIRContext* context, bool weights_only)
      : OpRewritePattern(context), weights_only(weights_only) {}

  mlir::LogicalResult matchAndRewrite(MatmulOp root, mlir::PatternRewriter& rewriter) const override {
    if (weights_only && !mfuse::isWeightProduct(root)) return mlir::failure();
    Match match("matmul_epilogue", root);
    llvm::SmallVector<mlir::Operation*> permutes;
    mlir::Value operands[2] = {root.getLhs(), root.getRhs()};
    bool transposed[2] = {root.getTransposeLhs(), root.getTransposeRhs()};
    for (int side = 0; side < 2; ++side) {
      auto permute = operands[side].getDefiningOp<mfuse::PermuteOp>();
      if (!permute || !swapsLastTwo(permute)) continue;
      // A region replaces its nodes as a whole: one that others read too stays outside.
      if (weights_only && !permute->hasOneUse()) continue;
      permutes.push_back(match.take<mfuse::PermuteOp>(operands[side]));
      operands[side] = permute.getInput();
      transposed[side] = !transposed[side];
    }
    // A permute that others read as well stays for them.
    if (permutes.empty() || mlir::failed(match.guard(permutes))) return mlir::failure();
    match.accept();
    rewriter.replaceOp(
        root, MatmulOp::create(rewriter, match.location({root.getResult()}), root.getType(), operands[0], operands[1],
                               root.getBias(), root.getMultiplier(), root.getResidual(), transposed[0], transposed[1],
                               root.getActivationAttr(), root.getScaleAttr()));
    return mlir::success();
  }

  bool weights_only;
};

struct FuseMatmulEpilogue : impl::FuseMatmulEpilogueBase<FuseMatmulEpilogue> {
  using FuseMatmulEpilogueBase::FuseMatmulEpilogueBase;

  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    const bool weights_only = weightsOnly;
    patterns.add<ActivationPattern, SumPattern, FactorPattern, TransposePattern>(&getContext(), weights_only);
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
