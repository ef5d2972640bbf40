#include "quincunx/compiler/import/graph_writer.h"

#include "mlir/IR/AffineMap.h"
#include "quincunx/compiler/dialect/origin.h"
#include "quincunx/compiler/dialect/shapes.h"

namespace qx::compiler {

using graph::Argument;
using graph::Dim;
using graph::ValueId;

GraphWriter::GraphWriter(const graph::Graph& source) : source_(source) {
  graph_.name = source.name;
  graph_.symbols = source.symbols;
  graph_.constants = source.constants;
}

ValueId GraphWriter::value(mlir::Value value) const { return ids_.lookup(value); }

// The shapes that mfuse can hold are affine in one symbol each, as the source's are; a sum of two symbols is not.
Result<Dim> GraphWriter::dim(mlir::AffineExpr size) const {
  if (!size) return unimplemented("a size is not known");
  Dim dim;
  if (auto sum = llvm::dyn_cast<mlir::AffineBinaryOpExpr>(size); sum && sum.getKind() == mlir::AffineExprKind::Add) {
    auto offset = llvm::dyn_cast<mlir::AffineConstantExpr>(sum.getRHS());
    if (!offset) return unimplemented("a size depends on more than one symbol");
    dim.value = offset.getValue();
    size = sum.getLHS();
  }
  if (auto constant = llvm::dyn_cast<mlir::AffineConstantExpr>(size)) {
    dim.value += constant.getValue();
    return dim;
  }
  if (auto product = llvm::dyn_cast<mlir::AffineBinaryOpExpr>(size);
      product && product.getKind() == mlir::AffineExprKind::Mul) {
    auto factor = llvm::dyn_cast<mlir::AffineConstantExpr>(product.getRHS());
    if (!factor) return unimplemented("a size is not affine");
    dim.multiplier = factor.getValue();
    size = product.getLHS();
  }
  auto symbol = llvm::dyn_cast<mlir::AffineSymbolExpr>(size);
  if (!symbol || symbol.getPosition() >= source_.symbols.size())
    return unimplemented("a size is not affine in one symbol");
  dim.symbol = static_cast<int32_t>(symbol.getPosition());
  return dim;
}

Result<std::vector<Dim>> GraphWriter::shape(mlir::RankedTensorType type) const {
  std::vector<Dim> sizes;
  for (mlir::AffineExpr size : mfuse::dimSizes(type)) {
    QX_ASSIGN_OR_RETURN(Dim dim, this->dim(size));
    sizes.push_back(dim);
  }
  return sizes;
}

Result<ValueId> GraphWriter::newValue(mlir::RankedTensorType type, int64_t origin) {
  graph::Value value;
  QX_ASSIGN_OR_RETURN(value.type.shape, shape(type));
  QX_ASSIGN_OR_RETURN(value.type.dtype, mfuse::dtypeOf(type.getElementType()));
  if (origin >= 0 && origin < static_cast<int64_t>(source_.values.size())) {
    value.name = source_.values[static_cast<size_t>(origin)].name;
  }
  graph_.values.push_back(std::move(value));
  origins_.push_back(origin);
  return static_cast<ValueId>(graph_.values.size() - 1);
}

Status GraphWriter::addArgument(mlir::Value argument, bool isInput) {
  auto type = llvm::dyn_cast<mlir::RankedTensorType>(argument.getType());
  if (!type) return invalid_argument("an argument of @main is no tensor");
  QX_ASSIGN_OR_RETURN(ids_[argument], newValue(type, mfuse::sourceValue(argument)));
  if (isInput) graph_.inputs.push_back(ids_[argument]);
  return ok_status();
}

Status GraphWriter::addConstant(mlir::Value value, int32_t constant) {
  auto type = llvm::cast<mlir::RankedTensorType>(value.getType());
  QX_ASSIGN_OR_RETURN(ValueId id, newValue(type, mfuse::sourceValue(value)));
  graph_.values[static_cast<size_t>(id)].constant = constant;
  ids_[value] = id;
  return ok_status();
}

void GraphWriter::alias(mlir::Value value, mlir::Value of) { ids_[value] = ids_.lookup(of); }

Status GraphWriter::add(std::string op, std::vector<Argument> arguments, mlir::ValueRange results) {
  graph::Node node{std::move(op), "", std::move(arguments), {}};
  for (mlir::Value result : results) {
    auto type = llvm::cast<mlir::RankedTensorType>(result.getType());
    QX_ASSIGN_OR_RETURN(ValueId id, newValue(type, mfuse::sourceValue(result)));
    ids_[result] = id;
    node.results.push_back(id);
  }
  if (!node.results.empty()) node.name = graph_.values[static_cast<size_t>(node.results.front())].name;
  graph_.nodes.push_back(std::move(node));
  return ok_status();
}

Result<ValueId> GraphWriter::addInner(std::string op, std::vector<Argument> arguments, mlir::RankedTensorType type) {
  QX_ASSIGN_OR_RETURN(ValueId id, newValue(type, -1));
  graph_.nodes.push_back({std::move(op), "", std::move(arguments), {id}});
  return id;
}

Result<Argument> GraphWriter::tensorOrScalar(mlir::Value value) const {
  if (llvm::isa<mlir::RankedTensorType>(value.getType())) return tensor(value);
  if (auto size = value.getDefiningOp<mfuse::SizeOp>()) {
    QX_ASSIGN_OR_RETURN(Dim dim, this->dim(size.getMap().getResult(0)));
    return Argument(dim);
  }
  auto scalar = value.getDefiningOp<mfuse::ScalarOp>();
  if (!scalar) return invalid_argument("a scalar is neither mfuse.scalar nor mfuse.size");
  if (auto number = llvm::dyn_cast<mlir::FloatAttr>(scalar.getValue())) return Argument(number.getValueAsDouble());
  return Argument(Dim{llvm::cast<mlir::IntegerAttr>(scalar.getValue()).getInt()});
}

}  // namespace qx::compiler
