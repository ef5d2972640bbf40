#include <numbers>

#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/transforms/match.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_DECOMPOSECOMPOSITES
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

using mfuse::BinaryKind;
using mfuse::ReduceKind;
using mfuse::UnaryKind;

// Emits primitive operations on tensors of one shape, in f32 where the composite's elements are narrower.
class Emitter {
 public:
  Emitter(mlir::PatternRewriter& rewriter, mlir::Operation* root)
      : rewriter_(rewriter), root_(root), location_(mfuse::innerOrigin(root)) {}

  mlir::Value number(double value) {
    mlir::TypedAttr attribute = rewriter_.getF64FloatAttr(value);
    return mfuse::ScalarOp::create(rewriter_, location_, attribute.getType(), attribute);
  }
  mlir::Value unary(UnaryKind kind, mlir::Value input) {
    return mfuse::UnaryOp::create(rewriter_, location_, tensorTypeOf(input), kind, input);
  }
  // The result has the shape of `lhs`.
  mlir::Value binary(BinaryKind kind, mlir::Value lhs, mlir::Value rhs) {
    return mfuse::BinaryOp::create(rewriter_, location_, tensorTypeOf(lhs), kind, lhs, rhs);
  }
  mlir::Value add(mlir::Value lhs, mlir::Value rhs) { return binary(BinaryKind::add, lhs, rhs); }
  mlir::Value sub(mlir::Value lhs, mlir::Value rhs) { return binary(BinaryKind::sub, lhs, rhs); }
  mlir::Value mul(mlir::Value lhs, mlir::Value rhs) { return binary(BinaryKind::mul, lhs, rhs); }
  mlir::Value cast(mlir::Value input, mlir::Type element) {
    auto type = tensorTypeOf(input);
    if (type.getElementType() == element) return input;
    return mfuse::CastOp::create(rewriter_, location_, mfuse::withElementType(type, element), input);
  }
  mlir::Value wide(mlir::Value input) {
    bool narrow = tensorTypeOf(input).getElementTypeBitWidth() < 32;
    return narrow ? cast(input, rewriter_.getF32Type()) : input;
  }
  // The operand's type with size 1 in the dims.
  mlir::RankedTensorType keptType(mlir::Value input, llvm::ArrayRef<int64_t> dims) {
    auto type = tensorTypeOf(input);
    auto sizes = mfuse::dimSizes(type);
    for (int64_t dim : dims) sizes[static_cast<size_t>(dim)] = rewriter_.getAffineConstantExpr(1);
    return mfuse::tensorType(sizes, mfuse::numSymbols(type), type.getElementType());
  }
  mlir::Value reduce(ReduceKind kind, mlir::Value input, llvm::ArrayRef<int64_t> dims) {
    return mfuse::ReduceOp::create(rewriter_, location_, keptType(input, dims), kind, input, dims, true);
  }
  mlir::Value variance(mlir::Value input, llvm::ArrayRef<int64_t> dims, llvm::APFloat correction) {
    return mfuse::VarianceOp::create(rewriter_, location_, keptType(input, dims), input, dims, correction, true);
  }
  mlir::Value slice(mlir::Value input, int64_t start, int64_t step, int64_t size) {
    auto type = tensorTypeOf(input);
    auto sizes = mfuse::dimSizes(type);
    sizes.back() = rewriter_.getAffineConstantExpr(size);
    auto result = mfuse::tensorType(sizes, mfuse::numSymbols(type), type.getElementType());
    return mfuse::SliceOp::create(rewriter_, location_, result, input, static_cast<uint64_t>(type.getRank() - 1),
                                  static_cast<uint64_t>(start), static_cast<uint64_t>(step));
  }
  mlir::Value cat(mlir::Value first, mlir::Value second, mlir::RankedTensorType type) {
    return mfuse::CatOp::create(rewriter_, location_, type, mlir::ValueRange{first, second},
                                static_cast<uint64_t>(type.getRank() - 1));
  }
  mlir::Value reshape(mlir::Value input, mlir::RankedTensorType type) {
    return mfuse::ReshapeOp::create(rewriter_, location_, type, input);
  }
  // 1 / sqrt(value + eps)
  mlir::Value inverseRoot(mlir::Value value, double eps) { return unary(UnaryKind::rsqrt, add(value, number(eps))); }

  // What takes the place of one of the root's results: it equals that result's source value.
  mlir::Value finish(mlir::Value value, unsigned index = 0) {
    mlir::Value result = root_->getResult(index);
    value = cast(value, tensorTypeOf(result).getElementType());
    value.getDefiningOp()->setLoc(mfuse::mergedOrigin({root_}, {result}));
    return value;
  }

 private:
  mlir::PatternRewriter& rewriter_;
  mlir::Operation* root_;
  mlir::Location location_;
};

mlir::Value activation(Emitter& emit, UnaryKind kind, mlir::Value x) {
  constexpr double kCubic = 0.044715, kQuick = 1.702;
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  switch (kind) {
    case UnaryKind::silu: return emit.mul(x, emit.unary(UnaryKind::sigmoid, x));
    case UnaryKind::gelu_quick: return emit.mul(x, emit.unary(UnaryKind::sigmoid, emit.mul(x, emit.number(kQuick))));
    case UnaryKind::gelu_erf: {
      mlir::Value erf = emit.unary(UnaryKind::erf, emit.mul(x, emit.number(std::numbers::sqrt2 / 2)));
      return emit.mul(emit.mul(x, emit.number(0.5)), emit.add(erf, emit.number(1.0)));
    }
    case UnaryKind::gelu_tanh: {
      mlir::Value cubic = emit.mul(emit.mul(emit.mul(x, x), x), emit.number(kCubic));
      mlir::Value tanh = emit.unary(UnaryKind::tanh, emit.mul(emit.add(x, cubic), emit.number(scale)));
      return emit.mul(emit.mul(x, emit.number(0.5)), emit.add(tanh, emit.number(1.0)));
    }
    default: return emit.unary(kind, x);
  }
}

struct UnaryPattern : mlir::OpRewritePattern<mfuse::UnaryOp> {
  using OpRewritePattern::OpRewritePattern;
  mlir::LogicalResult matchAndRewrite(mfuse::UnaryOp op, mlir::PatternRewriter& rewriter) const override {
    if (!mfuse::isComposite(op.getKind())) return mlir::failure();
    Emitter emit(rewriter, op);
    rewriter.replaceOp(op, emit.finish(activation(emit, op.getKind(), emit.wide(op.getInput()))));
    return mlir::success();
  }
};

struct BinaryPattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;
  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp op, mlir::PatternRewriter& rewriter) const override {
    bool sameShapes = op.getLhs().getType() == op.getType() && op.getRhs().getType() == op.getType();
    if (!mfuse::isComposite(op.getKind()) || !sameShapes) return mlir::failure();
    UnaryKind kind = op.getKind() == BinaryKind::swiglu      ? UnaryKind::silu
                     : op.getKind() == BinaryKind::geglu_erf ? UnaryKind::gelu_erf
                                                             : UnaryKind::gelu_tanh;
    Emitter emit(rewriter, op);
    mlir::Value gate = activation(emit, kind, emit.wide(op.getLhs()));
    rewriter.replaceOp(op, emit.finish(emit.mul(gate, emit.wide(op.getRhs()))));
    return mlir::success();
  }
};

mlir::Value rmsNorm(Emitter& emit, mlir::Value x, mlir::Value weight, double eps) {
  x = emit.wide(x);
  mlir::Value mean = emit.reduce(ReduceKind::mean, emit.mul(x, x), {tensorTypeOf(x).getRank() - 1});
  mlir::Value value = emit.mul(x, emit.inverseRoot(mean, eps));
  return weight ? emit.mul(value, emit.wide(weight)) : value;
}

struct RmsNormPattern : mlir::OpRewritePattern<mfuse::RmsNormOp> {
  using OpRewritePattern::OpRewritePattern;
  mlir::LogicalResult matchAndRewrite(mfuse::RmsNormOp op, mlir::PatternRewriter& rewriter) const override {
    Emitter emit(rewriter, op);
    rewriter.replaceOp(op, emit.finish(rmsNorm(emit, op.getInput(), op.getWeight(), op.getEps().convertToDouble())));
    return mlir::success();
  }
};

struct AddRmsNormPattern : mlir::OpRewritePattern<mfuse::AddRmsNormOp> {
  using OpRewritePattern::OpRewritePattern;
  mlir::LogicalResult matchAndRewrite(mfuse::AddRmsNormOp op, mlir::PatternRewriter& rewriter) const override {
    Emitter emit(rewriter, op);
    mlir::Value sum = emit.finish(emit.add(op.getInput(), op.getResidual()), 1);
    mlir::Value norm = emit.finish(rmsNorm(emit, sum, op.getWeight(), op.getEps().convertToDouble()));
    rewriter.replaceOp(op, {norm, sum});
    return mlir::success();
  }
};

struct LayerNormPattern : mlir::OpRewritePattern<mfuse::LayerNormOp> {
  using OpRewritePattern::OpRewritePattern;
  mlir::LogicalResult matchAndRewrite(mfuse::LayerNormOp op, mlir::PatternRewriter& rewriter) const override {
    Emitter emit(rewriter, op);
    mlir::Value x = emit.wide(op.getInput());
    int64_t rank = tensorTypeOf(x).getRank();
    auto dims = llvm::to_vector(llvm::seq(rank - static_cast<int64_t>(op.getNumDims()), rank));
    mlir::Value value = emit.sub(x, emit.reduce(ReduceKind::mean, x, dims));
    mlir::Value variance = emit.variance(x, dims, op.getCorrection());
    double eps = op.getEps().convertToDouble();
    if (op.getEpsOutside()) {
      mlir::Value deviation = emit.add(emit.unary(UnaryKind::sqrt, variance), emit.number(eps));
      value = emit.binary(BinaryKind::div, value, deviation);
    } else {
      value = emit.mul(value, emit.inverseRoot(variance, eps));
    }
    if (op.getWeight()) value = emit.mul(value, emit.wide(op.getWeight()));
    if (op.getBias()) value = emit.add(value, emit.wide(op.getBias()));
    rewriter.replaceOp(op, emit.finish(value));
    return mlir::success();
  }
};

struct SoftmaxPattern : mlir::OpRewritePattern<mfuse::SoftmaxOp> {
  using OpRewritePattern::OpRewritePattern;
  mlir::LogicalResult matchAndRewrite(mfuse::SoftmaxOp op, mlir::PatternRewriter& rewriter) const override {
    Emitter emit(rewriter, op);
    auto dim = static_cast<int64_t>(op.getDim());
    mlir::Value x = emit.wide(op.getInput());
    mlir::Value shifted = emit.sub(x, emit.reduce(ReduceKind::max, x, {dim}));
    mlir::Value exponential = emit.unary(UnaryKind::exp, shifted);
    mlir::Value sum = emit.reduce(ReduceKind::sum, exponential, {dim});
    mlir::Value value = op.getLogarithm() ? emit.sub(shifted, emit.unary(UnaryKind::log, sum))
                                          : emit.binary(BinaryKind::div, exponential, sum);
    rewriter.replaceOp(op, emit.finish(value));
    return mlir::success();
  }
};

struct RopePattern : mlir::OpRewritePattern<mfuse::RopeOp> {
  using OpRewritePattern::OpRewritePattern;
  mlir::LogicalResult matchAndRewrite(mfuse::RopeOp op, mlir::PatternRewriter& rewriter) const override {
    Emitter emit(rewriter, op);
    mlir::Value x = emit.wide(op.getInput());
    auto type = tensorTypeOf(x);
    int64_t half = type.getShape().back() / 2;
    mlir::Value rotated;
    if (op.getStyle() == mfuse::RopeStyle::half) {
      mlir::Value upper = emit.slice(x, half, 1, half), lower = emit.slice(x, 0, 1, half);
      rotated = emit.cat(emit.unary(UnaryKind::neg, upper), lower, type);
    } else {
      auto sizes = mfuse::dimSizes(type);
      sizes.back() = rewriter.getAffineConstantExpr(half);
      auto pairs = [&](int64_t size) {
        auto all = sizes;
        all.push_back(rewriter.getAffineConstantExpr(size));
        return mfuse::tensorType(all, mfuse::numSymbols(type), type.getElementType());
      };
      mlir::Value odd = emit.unary(UnaryKind::neg, emit.slice(x, 1, 2, half)), even = emit.slice(x, 0, 2, half);
      rotated = emit.reshape(emit.cat(emit.reshape(odd, pairs(1)), emit.reshape(even, pairs(1)), pairs(2)), type);
    }
    mlir::Value value = emit.add(emit.mul(x, emit.wide(op.getCos())), emit.mul(rotated, emit.wide(op.getSin())));
    rewriter.replaceOp(op, emit.finish(value));
    return mlir::success();
  }
};

struct MatmulPattern : mlir::OpRewritePattern<mfuse::MatmulOp> {
  using OpRewritePattern::OpRewritePattern;
  mlir::LogicalResult matchAndRewrite(mfuse::MatmulOp op, mlir::PatternRewriter& rewriter) const override {
    const bool plain = !op.getScale() && !op.getBias() && !op.getActivation() && !op.getMultiplier();
    if (plain && !op.getResidual()) return mlir::failure();
    Emitter emit(rewriter, op);
    mlir::Value value = mfuse::MatmulOp::create(
        rewriter, mfuse::innerOrigin(op), op.getType(), op.getLhs(), op.getRhs(), mlir::Value(), mlir::Value(),
        mlir::Value(), op.getTransposeLhs(), op.getTransposeRhs(), mfuse::UnaryKindAttr(), mlir::FloatAttr());
    value = emit.wide(value);
    if (op.getScale()) value = emit.mul(value, emit.number(op.getScale()->convertToDouble()));
    if (op.getBias()) value = emit.add(value, emit.wide(op.getBias()));
    if (op.getActivation()) value = activation(emit, *op.getActivation(), value);
    if (op.getMultiplier()) value = emit.mul(value, emit.wide(op.getMultiplier()));
    if (op.getResidual()) value = emit.add(value, emit.wide(op.getResidual()));
    rewriter.replaceOp(op, emit.finish(value));
    return mlir::success();
  }
};

struct DecomposeComposites : impl::DecomposeCompositesBase<DecomposeComposites> {
  using DecomposeCompositesBase::DecomposeCompositesBase;

  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    patterns.add<UnaryPattern, BinaryPattern, RmsNormPattern, AddRmsNormPattern, LayerNormPattern, SoftmaxPattern,
                 RopePattern>(&getContext());
    if (products) patterns.add<MatmulPattern>(&getContext());
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
