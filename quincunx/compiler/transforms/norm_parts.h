// Parts that the normalisation patterns share.
#pragma once

#include "quincunx/compiler/transforms/match.h"

namespace qx::compiler {

// How a norm divides: value = numerator * 1 / sqrt(radicand).
struct Normalized {
  mlir::Value numerator;
  mlir::Value radicand;
};

// numerator * rsqrt(radicand) in any order and spelling (rsqrt, pow -0.5, 1 / sqrt), or numerator / sqrt(radicand),
// where the radicand is a sum. Null members if `root` is neither.
Normalized matchNormalized(Match& match, mfuse::BinaryOp root);

// radicand = inner + eps. False, with nothing taken, if it is not.
bool matchEpsilon(Match& match, mlir::Value radicand, mlir::Value& inner, double& eps);

// The mean of `value` over some dims, as a mean or as a sum divided by the count; keepdim may be restored by a reshape.
struct Mean {
  mlir::Value input;
  llvm::SmallVector<int64_t> dims;
  bool keepdim = false;
  bool rightCount = true;
};
std::optional<Mean> matchMean(Match& match, mlir::Value value);

// Whether value is x * x or pow(x, 2): gives x.
mlir::Value matchSquare(Match& match, mlir::Value value);

// A parameter of `count` trailing dims of `type`: itself, or what a reshape or broadcast that only adds leading ones
// was made from. Null if `value` is something else.
mlir::Value parameterOf(mlir::Value value, mlir::RankedTensorType type, int64_t count);

}  // namespace qx::compiler
