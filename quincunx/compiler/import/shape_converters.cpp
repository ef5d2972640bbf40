// Operators that arrange elements anew. The graph states the type of each result, so that sizes need no arithmetic
// here.
#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/import/converters.h"

namespace qx::compiler {
namespace {

mlir::RankedTensorType typeOf(mlir::Value value) { return llvm::cast<mlir::RankedTensorType>(value.getType()); }

std::optional<int64_t> dimNumber(NodeImporter& node, size_t argument, int64_t rank) {
  auto dim = node.integer(argument);
  if (!dim || *dim < -rank || *dim >= rank) return std::nullopt;
  return *dim < 0 ? *dim + rank : *dim;
}

bool convertReshape(NodeImporter& node) {
  mlir::Value input = node.tensor(0);
  auto type = node.resultType(0);
  if (!input || !type || typeOf(input).getElementType() != type.getElementType()) return false;
  if (input.getType() != type && typeOf(input).hasStaticShape() && type.hasStaticShape() &&
      typeOf(input).getNumElements() != type.getNumElements()) {
    return false;
  }
  return node.finish(0, node.reshape(input, type));
}

bool permute(NodeImporter& node, llvm::ArrayRef<int64_t> permutation) {
  mlir::Value input = node.tensor(0);
  auto type = typeOf(input);
  llvm::SmallVector<mlir::AffineExpr> sizes;
  for (int64_t dim : permutation) sizes.push_back(mfuse::dimSize(type, dim));
  auto result = mfuse::tensorType(sizes, static_cast<unsigned>(node.graph().symbols.size()), type.getElementType());
  return node.finish(0, mfuse::PermuteOp::create(node.builder(), node.location(), result, input, permutation));
}

bool convertPermute(NodeImporter& node) {
  auto dims = node.integers(1);
  if (!node.tensor(0) || !dims) return false;
  int64_t rank = typeOf(node.tensor(0)).getRank();
  auto sorted = NodeImporter::normalizeDims(*dims, rank);
  if (!sorted || static_cast<int64_t>(sorted->size()) != rank) return false;
  for (int64_t& dim : *dims) dim += dim < 0 ? rank : 0;
  return permute(node, *dims);
}

bool transpose(NodeImporter& node, std::optional<int64_t> first, std::optional<int64_t> second) {
  if (!first || !second) return false;
  auto permutation = llvm::to_vector(llvm::seq<int64_t>(0, typeOf(node.tensor(0)).getRank()));
  std::swap(permutation[static_cast<size_t>(*first)], permutation[static_cast<size_t>(*second)]);
  return permute(node, permutation);
}

bool convertTranspose(NodeImporter& node) {
  if (!node.tensor(0)) return false;
  int64_t rank = typeOf(node.tensor(0)).getRank();
  return transpose(node, dimNumber(node, 1, rank), dimNumber(node, 2, rank));
}

bool convertMatrixTranspose(NodeImporter& node) {
  if (!node.tensor(0)) return false;
  int64_t rank = typeOf(node.tensor(0)).getRank();
  if (rank < 2) return node.finish(0, node.tensor(0));
  return rank == 2 && transpose(node, 0, 1);
}

bool convertExpand(NodeImporter& node) {
  mlir::Value input = node.tensor(0);
  auto type = node.resultType(0);
  if (!input || !type || typeOf(input).getElementType() != type.getElementType()) return false;
  if (!mfuse::broadcastsTo(typeOf(input), type)) return false;
  if (input.getType() == type) return node.finish(0, input);
  return node.finish(0, mfuse::BroadcastOp::create(node.builder(), node.location(), type, input));
}

// `size` elements from `start` along `dim`.
mlir::Value slice(NodeImporter& node, int64_t dim, int64_t start, int64_t step, mlir::AffineExpr size) {
  mlir::Value input = node.tensor(0);
  auto type = typeOf(input);
  auto sizes = mfuse::dimSizes(type);
  sizes[static_cast<size_t>(dim)] = size;
  auto result = mfuse::tensorType(sizes, static_cast<unsigned>(node.graph().symbols.size()), type.getElementType());
  return mfuse::SliceOp::create(node.builder(), node.location(), result, input, dim, start, step);
}

// A position from the front: negative ones count from the end, which must be known then.
std::optional<int64_t> position(mlir::RankedTensorType type, int64_t dim, int64_t index) {
  if (index >= 0) return type.isDynamicDim(dim) ? index : std::min(index, type.getDimSize(dim));
  if (type.isDynamicDim(dim)) return std::nullopt;
  return std::max<int64_t>(0, index + type.getDimSize(dim));
}

bool convertSlice(NodeImporter& node) {
  if (!node.tensor(0) || !node.resultType(0)) return false;
  auto type = typeOf(node.tensor(0));
  auto dim = dimNumber(node, 1, type.getRank());
  auto start = node.missing(2) ? std::optional<int64_t>(0) : node.integer(2);
  auto step = node.missing(4) ? std::optional<int64_t>(1) : node.integer(4);
  if (!dim || !start || !step || *step < 1 || node.resultType(0).getRank() != type.getRank()) return false;
  start = position(type, *dim, *start);
  return start && node.finish(0, slice(node, *dim, *start, *step, mfuse::dimSize(node.resultType(0), *dim)));
}

bool convertNarrow(NodeImporter& node) {
  if (!node.tensor(0) || !node.resultType(0)) return false;
  auto type = typeOf(node.tensor(0));
  auto dim = dimNumber(node, 1, type.getRank());
  if (!dim || !node.integer(2) || node.resultType(0).getRank() != type.getRank()) return false;
  auto start = position(type, *dim, *node.integer(2));
  return start && node.finish(0, slice(node, *dim, *start, 1, mfuse::dimSize(node.resultType(0), *dim)));
}

bool convertSelect(NodeImporter& node) {
  if (!node.tensor(0) || !node.resultType(0)) return false;
  auto type = typeOf(node.tensor(0));
  auto dim = dimNumber(node, 1, type.getRank());
  if (!dim || !node.integer(2)) return false;
  auto start = position(type, *dim, *node.integer(2));
  if (!start || node.resultType(0).getElementType() != type.getElementType()) return false;
  mlir::Value one = slice(node, *dim, *start, 1, node.builder().getAffineConstantExpr(1));
  return node.finish(0, node.reshape(one, node.resultType(0)));
}

// split, split_with_sizes, chunk, unbind: the results' sizes say where each begins.
bool convertSplit(NodeImporter& node, size_t dimArgument, bool unbind) {
  if (!node.tensor(0)) return false;
  auto type = typeOf(node.tensor(0));
  auto dim = dimNumber(node, dimArgument, type.getRank());
  if (!dim) return false;
  int64_t start = 0;
  for (size_t index = 0; index < node.results().size(); ++index) {
    auto result = node.resultType(index);
    if (!result || result.getRank() != type.getRank() - (unbind ? 1 : 0)) return false;
    mlir::AffineExpr size = unbind ? node.builder().getAffineConstantExpr(1) : mfuse::dimSize(result, *dim);
    auto known = llvm::dyn_cast_if_present<mlir::AffineConstantExpr>(size);
    if (!known && index + 1 < node.results().size()) return false;
    mlir::Value part = slice(node, *dim, start, 1, size);
    if (unbind) part = result.getElementType() == type.getElementType() ? node.reshape(part, result) : mlir::Value();
    if (!node.finish(index, part)) return false;
    start += known ? known.getValue() : 0;
  }
  return true;
}

bool convertCat(NodeImporter& node, bool stack) {
  auto inputs = node.tensorList(0);
  auto type = node.resultType(0);
  if (!inputs || inputs->empty() || !type || llvm::isa<mlir::ComplexType>(type.getElementType())) return false;
  auto dim = node.missing(1) ? std::optional<int64_t>(0) : dimNumber(node, 1, type.getRank());
  if (!dim) return false;
  for (mlir::Value& input : *inputs) {
    if (typeOf(input).getRank() != type.getRank() - (stack ? 1 : 0)) return false;
    input = node.cast(input, type.getElementType());
    if (!input) return false;
    if (!stack) continue;
    auto sizes = mfuse::dimSizes(typeOf(input));
    sizes.insert(sizes.begin() + *dim, node.builder().getAffineConstantExpr(1));
    input = node.reshape(
        input, mfuse::tensorType(sizes, static_cast<unsigned>(node.graph().symbols.size()), type.getElementType()));
  }
  return node.finish(0, mfuse::CatOp::create(node.builder(), node.location(), type, *inputs, *dim));
}

}  // namespace

void addShapeConverters(ConverterTable& table) {
  for (const char* name :
       {"view.default", "_unsafe_view.default", "reshape.default", "unsqueeze.default", "squeeze.dim", "squeeze.dims",
        "squeeze.default", "flatten.using_ints", "unflatten.int", "view_as.default"}) {
    table["aten." + std::string(name)] = convertReshape;
  }
  // The values of the operand; the importer sees to it that a copy of what is written to later stays a copy.
  for (const char* name :
       {"alias.default", "detach.default", "clone.default", "contiguous.default", "lift_fresh_copy.default"}) {
    table["aten." + std::string(name)] = [](NodeImporter& n) {
      return n.tensor(0) && n.resultType(0) && typeOf(n.tensor(0)).getElementType() == n.resultElement() &&
             n.finish(0, n.tensor(0));
    };
  }
  table["aten.permute.default"] = convertPermute;
  table["aten.transpose.int"] = convertTranspose;
  table["aten.t.default"] = convertMatrixTranspose;
  for (const char* name : {"expand.default", "expand_as.default", "broadcast_to.default"}) {
    table["aten." + std::string(name)] = convertExpand;
  }
  table["aten.slice.Tensor"] = convertSlice;
  table["aten.narrow.default"] = convertNarrow;
  table["aten.select.int"] = convertSelect;
  for (const char* name : {"split.Tensor", "split_with_sizes.default", "chunk.default"}) {
    table["aten." + std::string(name)] = [](NodeImporter& n) { return convertSplit(n, 2, false); };
  }
  table["aten.unbind.int"] = [](NodeImporter& n) { return convertSplit(n, 1, true); };
  table["aten.cat.default"] = [](NodeImporter& n) { return convertCat(n, false); };
  table["aten.stack.default"] = [](NodeImporter& n) { return convertCat(n, true); };
}

}  // namespace qx::compiler
