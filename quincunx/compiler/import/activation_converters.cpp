// Activation functions. Those that are several operations compute in f32 and round once, as PyTorch's kernels do.
#include "quincunx/compiler/import/converters.h"

namespace qx::compiler {
namespace {

using mfuse::BinaryKind;
using mfuse::Predicate;
using mfuse::UnaryKind;

bool isFloatTensor(mlir::Value value) {
  return value && llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(value.getType()));
}

mlir::Value clamp(NodeImporter& node, mlir::Value value, double low, double high) {
  value = node.binary(BinaryKind::maximum, value, node.constant(low));
  return node.binary(BinaryKind::minimum, value, node.constant(high));
}

bool convertGelu(NodeImporter& node) {
  auto approximate = node.string(1);
  if (!isFloatTensor(node.tensor(0)) || !approximate || (*approximate != "none" && *approximate != "tanh"))
    return false;
  return node.finish(0,
                     node.unary(*approximate == "tanh" ? UnaryKind::gelu_tanh : UnaryKind::gelu_erf, node.tensor(0)));
}

bool convertHardSwish(NodeImporter& node, bool timesInput) {
  if (!isFloatTensor(node.tensor(0))) return false;
  mlir::Value x = node.wide(node.tensor(0));
  mlir::Value gate = clamp(node, node.binary(BinaryKind::add, x, node.constant(3.0)), 0.0, 6.0);
  if (timesInput) gate = node.binary(BinaryKind::mul, x, gate);
  return node.finish(0, node.binary(BinaryKind::div, gate, node.constant(6.0)));
}

bool convertLeakyRelu(NodeImporter& node) {
  if (!isFloatTensor(node.tensor(0)) || !node.number(1)) return false;
  mlir::Value x = node.tensor(0);
  mlir::Value scaled = node.binary(BinaryKind::mul, x, node.constant(*node.number(1)));
  mlir::Value positive = node.compare(Predicate::gt, x, node.constant(0.0));
  return node.finish(0, node.select(positive, x, scaled, node.resultElement()));
}

// scale * (x > 0 ? x : alpha * expm1(x * input_scale))
bool convertElu(NodeImporter& node) {
  if (!isFloatTensor(node.tensor(0)) || !node.number(1) || !node.number(2) || !node.number(3)) return false;
  mlir::Value x = node.wide(node.tensor(0));
  mlir::Value negative = node.unary(UnaryKind::expm1, node.binary(BinaryKind::mul, x, node.constant(*node.number(3))));
  negative = node.binary(BinaryKind::mul, negative, node.constant(*node.number(1)));
  mlir::Value positive = node.compare(Predicate::gt, x, node.constant(0.0));
  mlir::Value value = node.select(positive, x, negative, mlir::getElementTypeOrSelf(x.getType()));
  return node.finish(0, node.binary(BinaryKind::mul, value, node.constant(*node.number(2))));
}

// x * beta > threshold ? x : log1p(exp(x * beta)) / beta
mlir::Value softplus(NodeImporter& node, mlir::Value x, double beta, double threshold) {
  mlir::Value scaled = node.binary(BinaryKind::mul, x, node.constant(beta));
  mlir::Value curved = node.unary(UnaryKind::log1p, node.unary(UnaryKind::exp, scaled));
  curved = node.binary(BinaryKind::div, curved, node.constant(beta));
  mlir::Value linear = node.compare(Predicate::gt, scaled, node.constant(threshold));
  return node.select(linear, x, curved, mlir::getElementTypeOrSelf(x.getType()));
}

bool convertSoftplus(NodeImporter& node) {
  if (!isFloatTensor(node.tensor(0)) || !node.number(1) || !node.number(2)) return false;
  return node.finish(0, softplus(node, node.wide(node.tensor(0)), *node.number(1), *node.number(2)));
}

bool convertMish(NodeImporter& node) {
  if (!isFloatTensor(node.tensor(0))) return false;
  constexpr double kThreshold = 20.0;  // PyTorch's softplus inside mish has its default threshold
  mlir::Value x = node.wide(node.tensor(0));
  return node.finish(0,
                     node.binary(BinaryKind::mul, x, node.unary(UnaryKind::tanh, softplus(node, x, 1.0, kThreshold))));
}

}  // namespace

void addActivationConverters(ConverterTable& table) {
  table["aten.gelu.default"] = convertGelu;
  table["aten.silu.default"] = [](NodeImporter& n) {
    return isFloatTensor(n.tensor(0)) && n.finish(0, n.unary(UnaryKind::silu, n.tensor(0)));
  };
  table["aten.relu6.default"] = [](NodeImporter& n) {
    return isFloatTensor(n.tensor(0)) && n.finish(0, clamp(n, n.tensor(0), 0.0, 6.0));
  };
  table["aten.hardswish.default"] = [](NodeImporter& n) { return convertHardSwish(n, true); };
  table["aten.hardsigmoid.default"] = [](NodeImporter& n) { return convertHardSwish(n, false); };
  table["aten.leaky_relu.default"] = convertLeakyRelu;
  table["aten.elu.default"] = convertElu;
  table["aten.softplus.default"] = convertSoftplus;
  table["aten.mish.default"] = convertMish;
}

}  // namespace qx::compiler
