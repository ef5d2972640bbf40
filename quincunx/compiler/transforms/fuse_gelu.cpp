#include <numbers>

#include "quincunx/compiler/transforms/match.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_FUSEGELU
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

using mfuse::BinaryKind;
using mfuse::UnaryKind;

constexpr double kCubic = 0.044715;
constexpr double kTanhScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kQuick = 1.702;

bool hasFactors(const Product& product, llvm::ArrayRef<mlir::Value> expected) {
  llvm::SmallVector<mlir::Value> left(product.factors);
  for (mlir::Value factor : expected) {
    auto* found = llvm::find(left, factor);
    if (found == left.end()) return false;
    left.erase(found);
  }
  return left.empty();
}

// The factor of a product that is 1 + f(z) for f = erf or tanh; gives f's operation.
mfuse::UnaryOp gateOf(mlir::Value factor) {
  Match match("gelu", factor.getDefiningOp());
  double one = 0;
  mlir::Value inner = factor.getDefiningOp() ? match.withNumber(factor, BinaryKind::add, one) : mlir::Value();
  if (!inner || one != 1.0) return {};
  auto gate = inner.getDefiningOp<mfuse::UnaryOp>();
  bool right = gate && (gate.getKind() == UnaryKind::erf || gate.getKind() == UnaryKind::tanh);
  return right ? gate : mfuse::UnaryOp();
}

// What the gate is a function of, if its argument is a constant times x, or null.
mlir::Value erfOperand(Match& match, mlir::Value argument, double& scale) {
  double number = 0;
  if (mlir::Value x = match.withNumber(argument, BinaryKind::mul, number)) {
    scale = number;
    return x;
  }
  mlir::Value x = match.withNumber(argument, BinaryKind::div, number);
  scale = 1.0 / number;
  return x;
}

// Whether value is coefficient * x^power.
bool isMonomial(Match& match, mlir::Value value, mlir::Value x, double coefficient, size_t power) {
  size_t start = match.mark();
  Product product = match.product(value, {x});
  if (isClose(product.coefficient, coefficient) && hasFactors(product, llvm::SmallVector<mlir::Value>(power, x)))
    return true;
  match.rewind(start);
  return false;
}

// scale * (x + 0.044715 x^3) or scale * x * (1 + 0.044715 x^2), given x.
bool isTanhArgument(Match& match, mlir::Value argument, mlir::Value x) {
  Product product = match.product(argument, {x});
  if (!isClose(product.coefficient, kTanhScale)) return false;
  llvm::SmallVector<mlir::Value> factors(product.factors);
  size_t power = 3;
  if (auto* found = llvm::find(factors, x); found != factors.end()) {
    factors.erase(found);
    power = 2;
  }
  mlir::Value lhs, rhs;
  if (factors.size() != 1 || !match.binary(factors.front(), BinaryKind::add, lhs, rhs)) return false;
  for (auto [linear, cubic] : {std::pair(lhs, rhs), std::pair(rhs, lhs)}) {
    bool isLinear = power == 3 ? linear == x : isNumber(linear, 1.0);
    if (isLinear && isMonomial(match, cubic, x, kCubic, power)) return true;
  }
  return false;
}

struct GeluPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    if (root.getKind() != BinaryKind::mul && root.getKind() != BinaryKind::div) return mlir::failure();
    Product all = Match("gelu", root).product(root.getResult(), {});
    for (mlir::Value factor : all.factors) {
      if (mfuse::UnaryOp gate = gateOf(factor)) return matchGate(root, factor, gate, all, rewriter);
    }
    return mlir::failure();
  }

 private:
  // The other factors are x, which may be a product itself: then the gate's argument says what x is.
  static mlir::Value operandOf(mfuse::BinaryOp root, mfuse::UnaryOp gate, const Product& all, mlir::Value factor) {
    Match ignored("gelu", root);
    double scale = 0;
    if (gate.getKind() == UnaryKind::erf) return erfOperand(ignored, gate.getInput(), scale);
    if (all.factors.size() == 2) return all.factors[0] == factor ? all.factors[1] : all.factors[0];
    // scale * (x + cubic): the operand of the sum that the rest of the product has as a factor of its own.
    Product argument = ignored.product(gate.getInput(), {});
    mlir::Value lhs, rhs;
    for (mlir::Value part : argument.factors) {
      if (!ignored.binary(part, BinaryKind::add, lhs, rhs)) continue;
      for (mlir::Value x : {lhs, rhs}) {
        Product retried = Match("gelu", root).product(root.getResult(), {x});
        if (hasFactors(retried, {x, factor})) return x;
      }
    }
    return {};
  }

  mlir::LogicalResult matchGate(mfuse::BinaryOp root, mlir::Value factor, mfuse::UnaryOp gate, const Product& all,
                                mlir::PatternRewriter& rewriter) const {
    mlir::Value x = operandOf(root, gate, all, factor);
    if (!x) return mlir::failure();
    Match match("gelu", root);
    Product product = match.product(root.getResult(), {x, factor});
    if (!hasFactors(product, {x, factor})) return mlir::failure();
    double number = 0;
    match.withNumber(factor, BinaryKind::add, number);
    match.unary(gate, gate.getKind());
    if (!isClose(product.coefficient, 0.5)) {
      // The product may go on: 0.5 * (x * (1 + ...)).
      if (root->hasOneUse() && llvm::isa<mfuse::BinaryOp>(*root->user_begin())) return mlir::failure();
      return match.reject("factor " + std::to_string(product.coefficient) + ", expected 0.5");
    }
    UnaryKind kind = UnaryKind::gelu_erf;
    if (gate.getKind() == UnaryKind::erf) {
      double scale = 0;
      erfOperand(match, gate.getInput(), scale);
      if (!isClose(scale, std::numbers::sqrt2 / 2))
        return match.reject("erf of " + std::to_string(scale) + " x, expected 1 / sqrt(2)");
    } else {
      kind = UnaryKind::gelu_tanh;
      if (!isTanhArgument(match, gate.getInput(), x))
        return match.reject("tanh is not of sqrt(2/pi) (x + 0.044715 x^3)");
    }
    return replace(match, root, kind, x, rewriter);
  }

 public:
  static mlir::LogicalResult replace(Match& match, mfuse::BinaryOp root, UnaryKind kind, mlir::Value x,
                                     mlir::PatternRewriter& rewriter) {
    if (tensorTypeOf(x) != root.getType()) return match.reject("the operand's type is not the result's");
    if (mlir::failed(match.guard())) return mlir::failure();
    match.accept();
    rewriter.replaceOp(root, mfuse::UnaryOp::create(rewriter, match.location({root}), root.getType(), kind, x));
    return mlir::success();
  }
};

struct QuickGeluPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    if (root.getKind() != BinaryKind::mul) return mlir::failure();
    for (auto [x, gate] : {std::pair(root.getLhs(), root.getRhs()), std::pair(root.getRhs(), root.getLhs())}) {
      Match match("gelu", root);
      double scale = 0;
      mlir::Value argument = match.unary(gate, UnaryKind::sigmoid);
      if (!argument || match.withNumber(argument, BinaryKind::mul, scale) != x) continue;
      if (!isClose(scale, kQuick)) return mlir::failure();
      return GeluPattern::replace(match, root, UnaryKind::gelu_quick, x, rewriter);
    }
    return mlir::failure();
  }
};

struct FuseGelu : impl::FuseGeluBase<FuseGelu> {
  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    patterns.add<GeluPattern, QuickGeluPattern>(&getContext());
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
