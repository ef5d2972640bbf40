// Gradients that AOTAutograd leaves whole. All compute in f32 and round once.
#include <cmath>
#include <numbers>

#include "quincunx/compiler/import/converters.h"

namespace qx::compiler {
namespace {

using mfuse::BinaryKind;
using mfuse::Predicate;
using mfuse::ReduceKind;
using mfuse::UnaryKind;

mlir::Value add(NodeImporter& n, mlir::Value a, mlir::Value b) { return n.binary(BinaryKind::add, a, b); }
mlir::Value sub(NodeImporter& n, mlir::Value a, mlir::Value b) { return n.binary(BinaryKind::sub, a, b); }
mlir::Value mul(NodeImporter& n, mlir::Value a, mlir::Value b) { return n.binary(BinaryKind::mul, a, b); }

// The first two arguments in f32; false unless both are floating-point tensors.
bool wideOperands(NodeImporter& node, mlir::Value& first, mlir::Value& second) {
  first = node.wide(node.tensor(0));
  second = node.wide(node.tensor(1));
  if (!first || !second || !node.resultType(0)) return false;
  mlir::Type a = mlir::getElementTypeOrSelf(first.getType()), b = mlir::getElementTypeOrSelf(second.getType());
  return a == b && llvm::isa<mlir::FloatType>(a);
}

// grad * (1 - y^2), grad * y * (1 - y)
bool convertTanh(NodeImporter& n) {
  mlir::Value grad, y;
  return wideOperands(n, grad, y) && n.finish(0, mul(n, grad, sub(n, n.constant(1.0), mul(n, y, y))));
}

bool convertSigmoid(NodeImporter& n) {
  mlir::Value grad, y;
  return wideOperands(n, grad, y) && n.finish(0, mul(n, mul(n, grad, sub(n, n.constant(1.0), y)), y));
}

// s = sigmoid(x): grad * s * (1 + x * (1 - s))
bool convertSilu(NodeImporter& n) {
  mlir::Value grad, x;
  if (!wideOperands(n, grad, x)) return false;
  mlir::Value s = n.unary(UnaryKind::sigmoid, x);
  mlir::Value inner = add(n, mul(n, x, sub(n, n.constant(1.0), s)), n.constant(1.0));
  return n.finish(0, mul(n, mul(n, grad, s), inner));
}

// grad where x > threshold, else 0; a NaN in x lets the gradient pass, as in PyTorch.
bool convertThreshold(NodeImporter& n) {
  mlir::Value grad, x;
  if (!wideOperands(n, grad, x) || !n.number(2)) return false;
  mlir::Value below = n.compare(Predicate::le, x, n.constant(*n.number(2)));
  return n.finish(0, n.select(below, n.constant(0.0), grad, mlir::getElementTypeOrSelf(grad.getType())));
}

// 0.5 (1 + erf(x / sqrt 2)) + x exp(-x^2 / 2) / sqrt(2 pi)
mlir::Value geluErfDerivative(NodeImporter& n, mlir::Value x) {
  mlir::Value erf = n.unary(UnaryKind::erf, mul(n, x, n.constant(std::numbers::sqrt2 / 2)));
  mlir::Value cdf = mul(n, add(n, erf, n.constant(1.0)), n.constant(0.5));
  mlir::Value bell = n.unary(UnaryKind::exp, mul(n, mul(n, x, x), n.constant(-0.5)));
  mlir::Value pdf = mul(n, bell, n.constant(std::numbers::inv_sqrtpi / std::numbers::sqrt2));
  return add(n, cdf, mul(n, x, pdf));
}

// t = tanh(k (x + c x^3)): 0.5 (1 + t) + 0.5 x (1 - t^2) k (1 + 3 c x^2)
mlir::Value geluTanhDerivative(NodeImporter& n, mlir::Value x) {
  constexpr double kCubic = 0.044715;
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  mlir::Value square = mul(n, x, x);
  mlir::Value inner = mul(n, add(n, x, mul(n, mul(n, square, x), n.constant(kCubic))), n.constant(scale));
  mlir::Value t = n.unary(UnaryKind::tanh, inner);
  mlir::Value left = mul(n, add(n, t, n.constant(1.0)), n.constant(0.5));
  mlir::Value slope = mul(n, add(n, mul(n, square, n.constant(3 * kCubic)), n.constant(1.0)), n.constant(scale));
  mlir::Value right = mul(n, mul(n, x, n.constant(0.5)), mul(n, sub(n, n.constant(1.0), mul(n, t, t)), slope));
  return add(n, left, right);
}

bool convertGelu(NodeImporter& n) {
  mlir::Value grad, x;
  auto approximate = n.string(2);
  if (!wideOperands(n, grad, x) || !approximate || (*approximate != "none" && *approximate != "tanh")) return false;
  return n.finish(0, mul(n, grad, *approximate == "tanh" ? geluTanhDerivative(n, x) : geluErfDerivative(n, x)));
}

// y * (grad - sum(grad * y)), and for the logarithm grad - exp(y) * sum(grad)
bool convertSoftmax(NodeImporter& n, bool logarithm) {
  mlir::Value grad, y;
  auto dim = n.integers(2);
  if (!wideOperands(n, grad, y) || !dim) return false;
  auto dims = NodeImporter::normalizeDims(*dim, llvm::cast<mlir::RankedTensorType>(y.getType()).getRank());
  if (!dims) return false;
  mlir::Value product = logarithm ? grad : mul(n, grad, y);
  mlir::Value sum = n.reduce(ReduceKind::sum, product, *dims, true);
  if (logarithm) return n.finish(0, sub(n, grad, mul(n, n.unary(UnaryKind::exp, y), sum)));
  return n.finish(0, sub(n, product, mul(n, y, sum)));
}

}  // namespace

void addBackwardConverters(ConverterTable& table) {
  table["aten.tanh_backward.default"] = convertTanh;
  table["aten.sigmoid_backward.default"] = convertSigmoid;
  table["aten.silu_backward.default"] = convertSilu;
  table["aten.threshold_backward.default"] = convertThreshold;
  table["aten.gelu_backward.default"] = convertGelu;
  table["aten._softmax_backward_data.default"] = [](NodeImporter& n) { return convertSoftmax(n, false); };
  table["aten._log_softmax_backward_data.default"] = [](NodeImporter& n) { return convertSoftmax(n, true); };
}

}  // namespace qx::compiler
