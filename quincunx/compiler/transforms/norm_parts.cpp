#include "quincunx/compiler/transforms/norm_parts.h"

#include <algorithm>

#include "quincunx/compiler/dialect/shapes.h"

namespace qx::compiler {
namespace {

using mfuse::BinaryKind;
using mfuse::ReduceKind;
using mfuse::UnaryKind;

// 1 / sqrt(z) in any spelling: gives z.
mlir::Value inverseRoot(Match& match, mlir::Value value) {
  size_t start = match.mark();
  double exponent = 0;
  if (mlir::Value z = match.unary(value, UnaryKind::rsqrt)) return z;
  if (mlir::Value z = match.withNumber(value, BinaryKind::pow, exponent); z && exponent == -0.5) return z;
  match.rewind(start);
  mlir::Value one, root = match.unary(value, UnaryKind::reciprocal);
  if (!root && match.binary(value, BinaryKind::div, one, root) && !isNumber(one, 1.0)) root = {};
  if (mlir::Value z = root ? match.unary(root, UnaryKind::sqrt) : mlir::Value()) return z;
  match.rewind(start);
  return {};
}

bool isSum(mlir::Value value) {
  auto op = value.getDefiningOp<mfuse::BinaryOp>();
  return op && op.getKind() == BinaryKind::add;
}

}  // namespace

Normalized matchNormalized(Match& match, mfuse::BinaryOp root) {
  size_t start = match.mark();
  if (root.getKind() == BinaryKind::mul) {
    for (auto [numerator, factor] :
         {std::pair(root.getLhs(), root.getRhs()), std::pair(root.getRhs(), root.getLhs())}) {
      mlir::Value radicand = inverseRoot(match, factor);
      if (radicand && isSum(radicand)) return {numerator, radicand};
      match.rewind(start);
    }
  } else if (root.getKind() == BinaryKind::div && tensorTypeOf(root.getLhs())) {
    mlir::Value radicand = match.unary(root.getRhs(), UnaryKind::sqrt);
    if (radicand && isSum(radicand)) return {root.getLhs(), radicand};
    match.rewind(start);
  }
  return {};
}

bool matchEpsilon(Match& match, mlir::Value radicand, mlir::Value& inner, double& eps) {
  inner = match.withNumber(radicand, BinaryKind::add, eps);
  return inner != nullptr;
}

std::optional<Mean> matchMean(Match& match, mlir::Value value) {
  size_t start = match.mark();
  mlir::RankedTensorType outer = tensorTypeOf(value);
  mlir::Value current = value;
  if (auto reshape = match.take<mfuse::ReshapeOp>(current)) current = reshape.getInput();
  bool reshaped = current != value;
  double number = 1.0;
  mlir::Value scaled = match.withNumber(current, BinaryKind::div, number);
  if (!scaled && (scaled = match.withNumber(current, BinaryKind::mul, number))) number = 1.0 / number;
  auto reduce = match.take<mfuse::ReduceOp>(scaled ? scaled : current);
  if (!reduce || reduce.getKind() != (scaled ? ReduceKind::sum : ReduceKind::mean)) {
    match.rewind(start);
    return std::nullopt;
  }
  Mean mean{reduce.getInput(), llvm::to_vector(reduce.getDims()), reduce.getKeepdim() && !reshaped, true};
  auto input = reduce.getInput().getType();
  if (reshaped && !reduce.getKeepdim() && outer.getRank() == input.getRank()) {
    mean.keepdim = llvm::all_of(mean.dims, [&](int64_t dim) { return outer.getDimSize(dim) == 1; });
  }
  if (scaled) {
    double count = 1.0;
    for (int64_t dim : mean.dims) count *= static_cast<double>(input.getDimSize(dim));
    mean.rightCount = isClose(number, count);
  }
  return mean;
}

mlir::Value matchSquare(Match& match, mlir::Value value) {
  size_t start = match.mark();
  double exponent = 0;
  if (mlir::Value x = match.withNumber(value, BinaryKind::pow, exponent); x && exponent == 2.0) return x;
  match.rewind(start);
  mlir::Value lhs, rhs;
  if (match.binary(value, BinaryKind::mul, lhs, rhs) && lhs == rhs) return lhs;
  match.rewind(start);
  return {};
}

mlir::Value parameterOf(mlir::Value value, mlir::RankedTensorType type, int64_t count) {
  auto outer = tensorTypeOf(value);
  if (!outer) return {};
  mlir::Operation* op = value.getDefiningOp();
  if (outer.getRank() != count && llvm::isa_and_present<mfuse::ReshapeOp, mfuse::BroadcastOp>(op)) {
    value = op->getOperand(0);
    // A broadcast aligns at the end by itself; a reshape may also have made rows of the parameter.
    bool reshaped = llvm::isa<mfuse::ReshapeOp>(op);
    for (int64_t dim = 0; reshaped && dim < outer.getRank() - count; ++dim) {
      if (outer.getDimSize(dim) != 1) return {};
    }
    for (int64_t dim = 0; reshaped && dim < std::min(count, outer.getRank()); ++dim) {
      if (mfuse::dimSize(outer, outer.getRank() - 1 - dim) != mfuse::dimSize(type, type.getRank() - 1 - dim)) return {};
    }
  }
  auto parameter = tensorTypeOf(value);
  if (parameter.getRank() != count || parameter.getElementType() != type.getElementType()) return {};
  for (int64_t dim = 0; dim < count; ++dim) {
    if (mfuse::dimSize(parameter, dim) != mfuse::dimSize(type, type.getRank() - count + dim)) return {};
  }
  return value;
}

}  // namespace qx::compiler
