#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/transforms/match.h"
#include "quincunx/compiler/transforms/passes.h"

namespace qx::compiler {

#define GEN_PASS_DEF_FUSEROPE
#include "quincunx/compiler/transforms/passes.h.inc"

namespace {

using mfuse::BinaryKind;
using mfuse::RopeStyle;
using mfuse::UnaryKind;

// Elements start, start + step, ... of the last dim of `of`.
struct Part {
  mlir::Value of;
  int64_t start = 0;
  int64_t step = 1;
  int64_t size = 0;
};

int64_t lastDim(mlir::Value value) { return tensorTypeOf(value).getRank() - 1; }
int64_t lastSize(mlir::Value value) { return tensorTypeOf(value).getShape().back(); }

mlir::Value stripReshapes(Match& match, mlir::Value value) {
  while (auto reshape = match.take<mfuse::ReshapeOp>(value)) value = reshape.getInput();
  return value;
}

std::optional<Part> slicePart(Match& match, mlir::Value value) {
  auto slice = match.take<mfuse::SliceOp>(value);
  if (!slice || static_cast<int64_t>(slice.getDim()) != lastDim(slice.getInput())) return std::nullopt;
  return Part{slice.getInput(), static_cast<int64_t>(slice.getStart()), static_cast<int64_t>(slice.getStep()),
              lastSize(slice.getResult())};
}

mlir::Value negated(Match& match, mlir::Value value) {
  double factor = 0;
  if (mlir::Value inner = match.unary(value, UnaryKind::neg)) return inner;
  mlir::Value inner = match.withNumber(value, BinaryKind::mul, factor);
  return inner && factor == -1.0 ? inner : mlir::Value();
}

// One of every pair: x[..., parity::2], or element `parity` of x seen as [..., d/2, 2]. Gives x.
std::optional<Part> pairPart(Match& match, mlir::Value value) {
  auto part = slicePart(match, stripReshapes(match, value));
  if (!part) return std::nullopt;
  if (part->step == 2) return part;
  auto reshape = match.take<mfuse::ReshapeOp>(part->of);
  if (!reshape || lastSize(part->of) != 2 || part->size != 1) return std::nullopt;
  return Part{reshape.getInput(), part->start, 2, lastSize(reshape.getInput()) / 2};
}

struct Rotation {
  mlir::Value x;
  RopeStyle style = RopeStyle::half;
  const char* problem = nullptr;
};

// cat(-x[d/2:], x[:d/2])
std::optional<Rotation> matchHalfRotation(Match& match, mlir::Value value) {
  auto cat = match.take<mfuse::CatOp>(value);
  if (!cat || cat.getInputs().size() != 2) return std::nullopt;
  mlir::Value second = negated(match, cat.getInputs()[0]);
  auto upper = second ? match.take<mfuse::SliceOp>(second) : mfuse::SliceOp();
  auto lower = match.take<mfuse::SliceOp>(cat.getInputs()[1]);
  if (!upper || !lower || upper.getInput() != lower.getInput()) return std::nullopt;
  mlir::Value x = upper.getInput();
  Rotation rotation{x, RopeStyle::half, nullptr};
  int64_t size = lastSize(x), last = lastDim(x);
  auto isLast = [&](uint64_t dim) { return static_cast<int64_t>(dim) == last; };
  if (!isLast(cat.getDim()) || !isLast(upper.getDim()) || !isLast(lower.getDim())) {
    rotation.problem = "halves are not of the last dim";
  } else if (mlir::ShapedType::isDynamic(size) || size % 2 != 0) {
    rotation.problem = "the last size is not known and even";
  } else if (lower.getStart() != 0 || static_cast<int64_t>(upper.getStart()) != size / 2 || upper.getStep() != 1 ||
             lower.getStep() != 1 || lastSize(lower) != size / 2 || lastSize(upper) != size / 2) {
    rotation.problem = "the slices are not the two halves";
  }
  return rotation;
}

// (-x[1], x[0], -x[3], x[2], ...): pairs that were stacked and flattened.
std::optional<Rotation> matchPairRotation(Match& match, mlir::Value value) {
  auto reshape = match.take<mfuse::ReshapeOp>(value);
  auto cat = reshape ? match.take<mfuse::CatOp>(reshape.getInput()) : mfuse::CatOp();
  if (!cat || cat.getInputs().size() != 2) return std::nullopt;
  mlir::Value second = negated(match, stripReshapes(match, cat.getInputs()[0]));
  auto odd = second ? pairPart(match, second) : std::nullopt;
  auto even = odd ? pairPart(match, cat.getInputs()[1]) : std::nullopt;
  if (!even || even->of != odd->of) return std::nullopt;
  Rotation rotation{even->of, RopeStyle::interleaved, nullptr};
  int64_t size = lastSize(even->of);
  if (static_cast<int64_t>(cat.getDim()) != lastDim(cat) || lastSize(cat) != 2 ||
      value.getType() != even->of.getType()) {
    rotation.problem = "the pairs are not stacked along a new last dim";
  } else if (mlir::ShapedType::isDynamic(size) || size % 2 != 0) {
    rotation.problem = "the last size is not known and even";
  } else if (even->start != 0 || odd->start != 1 || even->size != size / 2 || odd->size != size / 2) {
    rotation.problem = "the slices are not the even and the odd elements";
  }
  return rotation;
}

std::optional<Rotation> matchRotation(Match& match, mlir::Value value) {
  size_t start = match.mark();
  if (!tensorTypeOf(value)) return std::nullopt;
  if (auto half = matchHalfRotation(match, value)) return half;
  match.rewind(start);
  if (auto pairs = matchPairRotation(match, value)) return pairs;
  match.rewind(start);
  return std::nullopt;
}

mlir::LogicalResult replace(Match& match, mlir::Operation* root, const Rotation& rotation, mlir::Value cos,
                            mlir::Value sin, mlir::PatternRewriter& rewriter) {
  auto type = tensorTypeOf(rotation.x);
  if (type != root->getResult(0).getType()) return match.reject("the operand's type is not the result's");
  if (cos.getType() != sin.getType() || tensorTypeOf(cos).getElementType() != type.getElementType() ||
      tensorTypeOf(cos).getRank() < 1 || lastSize(cos) != type.getShape().back()) {
    return match.reject("cos and sin do not fit the operand");
  }
  if (mlir::failed(match.guard())) return mlir::failure();
  match.accept();
  rewriter.replaceOp(root, mfuse::RopeOp::create(rewriter, match.location({root->getResult(0)}), type, rotation.x, cos,
                                                 sin, rotation.style));
  return mlir::success();
}

// x * cos + rotate(x) * sin
struct RopePattern : mlir::OpRewritePattern<mfuse::BinaryOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::BinaryOp root, mlir::PatternRewriter& rewriter) const override {
    if (root.getKind() != BinaryKind::add) return mlir::failure();
    for (auto [straight, turned] : {std::pair(root.getLhs(), root.getRhs()), std::pair(root.getRhs(), root.getLhs())}) {
      Match match("rope", root);
      mlir::Value lhs, rhs, x, cos;
      if (!match.binary(turned, BinaryKind::mul, lhs, rhs)) continue;
      auto rotation = matchRotation(match, lhs);
      mlir::Value sin = rhs;
      if (!rotation) {
        rotation = matchRotation(match, rhs);
        sin = lhs;
      }
      if (!rotation || !tensorTypeOf(sin) || !match.binary(straight, BinaryKind::mul, x, cos)) continue;
      if (x != rotation->x) std::swap(x, cos);
      if (x != rotation->x) return match.reject("cos is not multiplied with the tensor that is rotated");
      if (rotation->problem) return match.reject(rotation->problem);
      if (!tensorTypeOf(cos)) return match.reject("cos is a scalar");
      return replace(match, root, *rotation, cos, sin, rewriter);
    }
    return mlir::failure();
  }
};

// a * b op c * d
bool matchProducts(Match& match, mlir::Value value, BinaryKind kind, mlir::Value (&operands)[4]) {
  mlir::Value lhs, rhs;
  return match.binary(value, kind, lhs, rhs) && match.binary(lhs, BinaryKind::mul, operands[0], operands[1]) &&
         match.binary(rhs, BinaryKind::mul, operands[2], operands[3]);
}

// cat(x1 * c - x2 * s, x2 * c + x1 * s) with the halves x1 and x2 of x
struct RopeHalvesPattern : mlir::OpRewritePattern<mfuse::CatOp> {
  using OpRewritePattern::OpRewritePattern;

  mlir::LogicalResult matchAndRewrite(mfuse::CatOp root, mlir::PatternRewriter& rewriter) const override {
    Match match("rope", root);
    mlir::Value first[4], second[4];
    if (root.getInputs().size() != 2 || !matchProducts(match, root.getInputs()[0], BinaryKind::sub, first) ||
        !matchProducts(match, root.getInputs()[1], BinaryKind::add, second)) {
      return mlir::failure();
    }
    auto lower = slicePart(match, first[0]), upper = slicePart(match, first[2]);
    if (!lower || !upper || lower->of != upper->of) return mlir::failure();
    mlir::Value cos = first[1], sin = first[3];
    bool crossed = second[0] == first[2] && second[1] == cos && second[2] == first[0] && second[3] == sin;
    bool swapped = second[2] == first[2] && second[3] == cos && second[0] == first[0] && second[1] == sin;
    if (!crossed && !swapped) return match.reject("the second half is not x2 * cos + x1 * sin");
    int64_t size = lastSize(lower->of);
    if (mlir::ShapedType::isDynamic(size) || size % 2 != 0 || lower->start != 0 || upper->start != size / 2 ||
        lower->step != 1 || upper->step != 1 || lower->size != size / 2 || upper->size != size / 2) {
      return match.reject("the slices are not the two halves");
    }
    if (static_cast<int64_t>(root.getDim()) != lastDim(root)) return match.reject("halves are not of the last dim");
    if (!tensorTypeOf(cos) || !tensorTypeOf(sin) || tensorTypeOf(cos).getRank() < 1 || cos.getType() != sin.getType() ||
        lastSize(cos) != size / 2) {
      return match.reject("cos and sin do not fit the operand");
    }
    if (lower->of.getType() != root.getType()) return match.reject("the operand's type is not the result's");
    if (mlir::failed(match.guard())) return mlir::failure();
    match.accept();
    mlir::Value x = lower->of, wideCos = twice(cos, root, rewriter), wideSin = twice(sin, root, rewriter);
    rewriter.replaceOp(root, mfuse::RopeOp::create(rewriter, match.location({root.getResult()}), root.getType(), x,
                                                   wideCos, wideSin, RopeStyle::half));
    return mlir::success();
  }

 private:
  static mlir::Value twice(mlir::Value half, mfuse::CatOp root, mlir::PatternRewriter& rewriter) {
    auto type = tensorTypeOf(half);
    auto sizes = mfuse::dimSizes(type);
    sizes.back() = sizes.back() * 2;
    auto whole = mfuse::tensorType(sizes, mfuse::numSymbols(type), type.getElementType());
    return mfuse::CatOp::create(rewriter, mfuse::innerOrigin(root), whole, mlir::ValueRange{half, half},
                                static_cast<uint64_t>(type.getRank() - 1));
  }
};

struct FuseRope : impl::FuseRopeBase<FuseRope> {
  void runOnOperation() override {
    mlir::RewritePatternSet patterns(&getContext());
    patterns.add<RopePattern, RopeHalvesPattern>(&getContext());
    walkPatterns(getOperation(), std::move(patterns));
  }
};

}  // namespace
}  // namespace qx::compiler
