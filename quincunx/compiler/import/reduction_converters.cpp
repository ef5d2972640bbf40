// Sums, means, extremes and variances.
#include <cmath>

#include "quincunx/compiler/import/converters.h"

namespace qx::compiler {
namespace {

using mfuse::BinaryKind;
using mfuse::ReduceKind;
using mfuse::UnaryKind;

constexpr size_t kNoArgument = 1000;

bool isFloat(mlir::Value value) { return llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(value.getType())); }

// The dims of an argument; all of them where it is missing or empty.
std::optional<llvm::SmallVector<int64_t>> reducedDims(NodeImporter& node, size_t argument) {
  int64_t rank = llvm::cast<mlir::RankedTensorType>(node.tensor(0).getType()).getRank();
  auto all = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  if (node.missing(argument)) return all;
  auto dims = node.integers(argument);
  if (!dims) return std::nullopt;
  // PyTorch lets dim 0 and -1 name the only element of a tensor of rank 0.
  if (rank == 0) return all;
  return dims->empty() ? all : NodeImporter::normalizeDims(*dims, rank);
}

bool convertReduce(NodeImporter& node, ReduceKind kind, size_t dimsArgument, size_t keepdimArgument) {
  if (!node.tensor(0) || !node.resultType(0)) return false;
  auto dims = reducedDims(node, dimsArgument);
  bool keepdim = node.boolean(keepdimArgument).value_or(false);
  // A wrong dtype argument and integer means are PyTorch's errors, not ours to reproduce.
  mlir::Value input = node.cast(node.tensor(0), node.resultElement());
  if (!dims || !input || llvm::isa<mlir::ComplexType>(node.resultElement()) ||
      (kind == ReduceKind::mean && !isFloat(input)))
    return false;
  bool logical = kind == ReduceKind::any || kind == ReduceKind::all;
  if (logical && !mlir::getElementTypeOrSelf(node.tensor(0).getType()).isInteger(1)) return false;
  return node.finish(0, node.reduce(kind, input, *dims, keepdim));
}

// max.dim and min.dim also give indices, which are not modelled: only where nobody reads them.
bool convertExtreme(NodeImporter& node, ReduceKind kind) {
  bool readsIndices = node.node().results.size() > 1 && node.isUsed(1);
  return !readsIndices && convertReduce(node, kind, 1, 2);
}

// var and std; `correction` is an argument, or 1 where `unbiased` is true.
bool convertVariance(NodeImporter& node, bool root, bool unbiased) {
  if (!node.tensor(0) || !isFloat(node.tensor(0)) || !node.resultType(0)) return false;
  auto dims = reducedDims(node, 1);
  std::optional<double> correction = node.missing(2) ? 1.0 : node.number(2);
  if (!dims || !correction || node.missing(3)) return false;
  if (unbiased && !node.boolean(2)) return false;
  mlir::Value value = node.wide(node.tensor(0));
  value = node.variance(root ? value : node.tensor(0), *dims, *correction, node.boolean(3).value_or(false));
  return node.finish(0, root ? node.unary(UnaryKind::sqrt, value) : value);
}

bool convertVarianceAndMean(NodeImporter& node) {
  if (node.node().results.size() != 2 || !node.resultType(1) || !convertVariance(node, false, false)) return false;
  return node.finish(
      1, node.reduce(ReduceKind::mean, node.tensor(0), *reducedDims(node, 1), node.boolean(3).value_or(false)));
}

// The Euclidean norm; other orders are left alone.
bool convertNorm(NodeImporter& node, size_t orderArgument, size_t dimsArgument, size_t keepdimArgument) {
  if (!node.tensor(0) || !isFloat(node.tensor(0)) || !node.resultType(0)) return false;
  auto order = node.missing(orderArgument) ? std::optional<double>(2.0) : node.number(orderArgument);
  auto dims = reducedDims(node, dimsArgument);
  if (order != 2.0 || !dims) return false;
  mlir::Value input = node.wide(node.cast(node.tensor(0), node.resultElement()));
  mlir::Value square = node.binary(BinaryKind::mul, input, input);
  mlir::Value sum = node.reduce(ReduceKind::sum, square, *dims, node.boolean(keepdimArgument).value_or(false));
  return node.finish(0, node.unary(UnaryKind::sqrt, sum));
}

}  // namespace

void addReductionConverters(ConverterTable& table) {
  auto add = [&](const char* name, ReduceKind kind, size_t dims, size_t keepdim) {
    table["aten." + std::string(name)] = [=](NodeImporter& n) { return convertReduce(n, kind, dims, keepdim); };
  };
  add("sum.default", ReduceKind::sum, kNoArgument, kNoArgument);
  add("sum.dim_IntList", ReduceKind::sum, 1, 2);
  add("mean.default", ReduceKind::mean, kNoArgument, kNoArgument);
  add("mean.dim", ReduceKind::mean, 1, 2);
  add("amax.default", ReduceKind::max, 1, 2);
  add("amin.default", ReduceKind::min, 1, 2);
  add("max.default", ReduceKind::max, kNoArgument, kNoArgument);
  add("min.default", ReduceKind::min, kNoArgument, kNoArgument);
  add("prod.default", ReduceKind::prod, kNoArgument, kNoArgument);
  add("prod.dim_int", ReduceKind::prod, 1, 2);
  add("any.default", ReduceKind::any, kNoArgument, kNoArgument);
  add("any.dim", ReduceKind::any, 1, 2);
  add("any.dims", ReduceKind::any, 1, 2);
  add("all.default", ReduceKind::all, kNoArgument, kNoArgument);
  add("all.dim", ReduceKind::all, 1, 2);
  table["aten.max.dim"] = [](NodeImporter& n) { return convertExtreme(n, ReduceKind::max); };
  table["aten.min.dim"] = [](NodeImporter& n) { return convertExtreme(n, ReduceKind::min); };
  table["aten.var.correction"] = [](NodeImporter& n) { return convertVariance(n, false, false); };
  table["aten.var.dim"] = [](NodeImporter& n) { return convertVariance(n, false, true); };
  table["aten.std.correction"] = [](NodeImporter& n) { return convertVariance(n, true, false); };
  table["aten.std.dim"] = [](NodeImporter& n) { return convertVariance(n, true, true); };
  table["aten.var_mean.correction"] = convertVarianceAndMean;
  table["aten.norm.ScalarOpt_dim"] = [](NodeImporter& n) { return convertNorm(n, 1, 2, 3); };
  table["aten.linalg_vector_norm.default"] = [](NodeImporter& n) { return convertNorm(n, 1, 2, 3); };
}

}  // namespace qx::compiler
