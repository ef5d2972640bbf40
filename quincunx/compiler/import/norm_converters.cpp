// Normalisations and softmax that the graph holds whole.
#include <limits>

#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/import/converters.h"

namespace qx::compiler {
namespace {

using mfuse::BinaryKind;
using mfuse::ReduceKind;
using mfuse::UnaryKind;

mlir::RankedTensorType typeOf(mlir::Value value) { return llvm::cast<mlir::RankedTensorType>(value.getType()); }

bool isFloat(mlir::Value value) { return value && llvm::isa<mlir::FloatType>(typeOf(value).getElementType()); }

bool convertSoftmax(NodeImporter& node, bool logarithm) {
  if (!node.tensor(0) || !node.resultType(0)) return false;
  mlir::Value input = node.cast(node.tensor(0), node.resultElement());
  auto dim = node.integers(1);
  if (!isFloat(input) || !dim || dim->size() != 1) return false;
  auto dims = NodeImporter::normalizeDims(*dim, typeOf(input).getRank());
  if (!dims) return false;
  return node.finish(
      0, mfuse::SoftmaxOp::create(node.builder(), node.location(), input.getType(), input, dims->front(), logarithm));
}

// How many trailing dimensions an argument `normalized_shape` names; nullopt unless they are the operand's.
std::optional<int64_t> numNormalized(NodeImporter& node, size_t argument) {
  auto shape = node.integers(argument);
  auto type = typeOf(node.tensor(0));
  if (!shape || shape->empty() || static_cast<int64_t>(shape->size()) > type.getRank()) return std::nullopt;
  auto count = static_cast<int64_t>(shape->size());
  for (int64_t dim = 0; dim < count; ++dim) {
    if (type.getDimSize(type.getRank() - count + dim) != (*shape)[static_cast<size_t>(dim)]) return std::nullopt;
  }
  return count;
}

bool isParameter(mlir::Value parameter, mlir::RankedTensorType type, int64_t count) {
  return !parameter ||
         (typeOf(parameter).getRank() == count && typeOf(parameter).getElementType() == type.getElementType());
}

// The norm in primitive operations, with its mean and 1/std, which the backward pass reads.
bool convertLayerNormWithStatistics(NodeImporter& node, int64_t count, double eps) {
  mlir::Value x = node.wide(node.tensor(0));
  int64_t rank = typeOf(x).getRank();
  auto dims = llvm::to_vector(llvm::seq(rank - count, rank));
  mlir::Value mean = node.reduce(ReduceKind::mean, x, dims, true);
  mlir::Value variance = node.variance(x, dims, 0.0, true);
  mlir::Value rstd = node.unary(UnaryKind::rsqrt, node.binary(BinaryKind::add, variance, node.constant(eps)));
  mlir::Value value = node.binary(BinaryKind::mul, node.binary(BinaryKind::sub, x, mean), rstd);
  if (mlir::Value weight = node.tensor(2)) value = node.binary(BinaryKind::mul, value, node.wide(weight));
  if (mlir::Value bias = node.tensor(3)) value = node.binary(BinaryKind::add, value, node.wide(bias));
  return node.finish(0, value) && node.finish(1, mean) && node.finish(2, rstd);
}

// layer_norm and native_layer_norm: (input, normalized_shape, weight, bias, eps).
bool convertLayerNorm(NodeImporter& node) {
  if (!isFloat(node.tensor(0)) || !node.resultType(0)) return false;
  auto type = typeOf(node.tensor(0));
  auto count = numNormalized(node, 1);
  auto eps = node.number(4);
  if (!count || !eps || !isParameter(node.tensor(2), type, *count) || !isParameter(node.tensor(3), type, *count))
    return false;
  bool native = node.node().results.size() == 3;
  if (native && (node.isUsed(1) || node.isUsed(2))) return convertLayerNormWithStatistics(node, *count, *eps);
  return node.finish(0, mfuse::LayerNormOp::create(node.builder(), node.location(), type, node.tensor(0),
                                                   node.tensor(2), node.tensor(3), static_cast<uint64_t>(*count),
                                                   llvm::APFloat(*eps), llvm::APFloat(0.0), false));
}

// The norm in primitive operations, with 1/rms, which the backward pass reads.
bool convertRmsNormWithStatistics(NodeImporter& node, double eps) {
  mlir::Value x = node.wide(node.tensor(0));
  mlir::Value mean = node.reduce(ReduceKind::mean, node.binary(BinaryKind::mul, x, x), {typeOf(x).getRank() - 1}, true);
  mlir::Value rstd = node.unary(UnaryKind::rsqrt, node.binary(BinaryKind::add, mean, node.constant(eps)));
  mlir::Value value = node.binary(BinaryKind::mul, x, rstd);
  if (mlir::Value weight = node.tensor(2)) value = node.binary(BinaryKind::mul, value, node.wide(weight));
  return node.finish(0, value) && node.finish(1, rstd);
}

// rms_norm: (input, normalized_shape, weight, eps); _fused_rms_norm also gives 1/rms.
bool convertRmsNorm(NodeImporter& node) {
  if (!isFloat(node.tensor(0)) || !node.resultType(0)) return false;
  auto type = typeOf(node.tensor(0));
  auto eps = node.number(3);
  if (node.missing(3) && type.getElementType().isF32()) eps = std::numeric_limits<float>::epsilon();
  if (numNormalized(node, 1) != 1 || !eps || !isParameter(node.tensor(2), type, 1)) return false;
  if (node.node().results.size() == 2 && node.isUsed(1)) return convertRmsNormWithStatistics(node, *eps);
  return node.finish(0, mfuse::RmsNormOp::create(node.builder(), node.location(), type, node.tensor(0), node.tensor(2),
                                                 llvm::APFloat(*eps)));
}

}  // namespace

void addNormConverters(ConverterTable& table) {
  for (const char* name : {"aten._softmax.default", "aten.softmax.int"}) {
    table[name] = [](NodeImporter& n) { return convertSoftmax(n, false); };
  }
  for (const char* name : {"aten._log_softmax.default", "aten.log_softmax.int"}) {
    table[name] = [](NodeImporter& n) { return convertSoftmax(n, true); };
  }
  table["aten.layer_norm.default"] = convertLayerNorm;
  table["aten.native_layer_norm.default"] = convertLayerNorm;
  table["aten.rms_norm.default"] = convertRmsNorm;
  table["aten._fused_rms_norm.default"] = convertRmsNorm;
}

}  // namespace qx::compiler
