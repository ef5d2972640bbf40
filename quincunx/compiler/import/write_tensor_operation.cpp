// Shapes, reductions, products and norms as PyTorch's operators.
#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/import/graph_writer.h"

namespace qx::compiler {
namespace {

using graph::Argument;
using graph::Dim;
using graph::TensorRef;
using graph::ValueId;
using mfuse::ReduceKind;

mlir::RankedTensorType typeOf(mlir::Value value) { return llvm::cast<mlir::RankedTensorType>(value.getType()); }

std::vector<Dim> dimList(llvm::ArrayRef<int64_t> values) {
  std::vector<Dim> dims;
  for (int64_t value : values) dims.push_back({value});
  return dims;
}

Dim known(int64_t value) { return {value}; }

// factor * dim + offset
Dim affine(Dim dim, int64_t factor, int64_t offset) {
  return {dim.value * factor + offset, dim.is_known() ? 1 : dim.multiplier * factor, dim.symbol};
}

Status writeFull(GraphWriter& writer, mfuse::FullOp op) {
  QX_ASSIGN_OR_RETURN(Argument value, writer.tensorOrScalar(op.getValue()));
  QX_ASSIGN_OR_RETURN(std::vector<Dim> shape, writer.shape(op.getType()));
  QX_ASSIGN_OR_RETURN(DType dtype, mfuse::dtypeOf(op.getType().getElementType()));
  return writer.add("aten.full.default", {std::move(shape), value, dtype, {}, {}, {}}, op->getResults());
}

Status writeIota(GraphWriter& writer, mfuse::IotaOp op) {
  QX_ASSIGN_OR_RETURN(Argument start, writer.tensorOrScalar(op.getStart()));
  QX_ASSIGN_OR_RETURN(Argument step, writer.tensorOrScalar(op.getStep()));
  QX_ASSIGN_OR_RETURN(std::vector<Dim> shape, writer.shape(op.getType()));
  QX_ASSIGN_OR_RETURN(DType dtype, mfuse::dtypeOf(op.getType().getElementType()));
  const auto* first = std::get_if<Dim>(&start);
  const auto* stride = std::get_if<Dim>(&step);
  if (!first || !stride || !first->is_known() || !stride->is_known()) {
    return unimplemented("mfuse.iota with bounds that are not known integers");
  }
  Dim end = affine(shape.front(), stride->value, first->value);
  return writer.add("aten.arange.start_step", {start, end, step, dtype, {}, {}, {}}, op->getResults());
}

Status writeSlice(GraphWriter& writer, mfuse::SliceOp op) {
  auto dim = static_cast<int64_t>(op.getDim()), start = static_cast<int64_t>(op.getStart());
  auto step = static_cast<int64_t>(op.getStep());
  QX_ASSIGN_OR_RETURN(Dim size, writer.dim(mfuse::dimSize(op.getType(), dim)));
  // One past the last element; a step beyond it would be rounded down all the same.
  Dim end = affine(size, step, start - step + 1);
  return writer.add("aten.slice.Tensor", {writer.tensor(op.getInput()), known(dim), known(start), end, known(step)},
                    op->getResults());
}

Status writeReduce(GraphWriter& writer, mfuse::ReduceOp op) {
  Argument input = writer.tensor(op.getInput()), dims = dimList(op.getDims());
  bool keepdim = op.getKeepdim();
  switch (op.getKind()) {
    case ReduceKind::sum: return writer.add("aten.sum.dim_IntList", {input, dims, keepdim, {}}, op->getResults());
    case ReduceKind::mean: return writer.add("aten.mean.dim", {input, dims, keepdim, {}}, op->getResults());
    case ReduceKind::max: return writer.add("aten.amax.default", {input, dims, keepdim}, op->getResults());
    case ReduceKind::min: return writer.add("aten.amin.default", {input, dims, keepdim}, op->getResults());
    case ReduceKind::any: return writer.add("aten.any.dims", {input, dims, keepdim}, op->getResults());
    case ReduceKind::prod:
      if (op.getDims().size() != 1) return unimplemented("mfuse.reduce prod over several dims");
      return writer.add("aten.prod.dim_int", {input, known(op.getDims().front()), keepdim, {}}, op->getResults());
    case ReduceKind::all: {
      QX_ASSIGN_OR_RETURN(ValueId negated, writer.addInner("aten.logical_not.default", {input}, typeOf(op.getInput())));
      QX_ASSIGN_OR_RETURN(ValueId any,
                          writer.addInner("aten.any.dims", {TensorRef{negated}, dims, keepdim}, op.getType()));
      return writer.add("aten.logical_not.default", {TensorRef{any}}, op->getResults());
    }
  }
  return internal_error("mfuse.reduce of an unknown kind");
}

// A matrix with its last two dimensions swapped.
Result<Argument> transposed(GraphWriter& writer, mlir::Value matrix) {
  auto type = typeOf(matrix);
  auto order = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  llvm::SmallVector<mlir::AffineExpr> sizes;
  for (int64_t dim : order) sizes.push_back(mfuse::dimSize(type, dim));
  auto swapped = mfuse::tensorType(sizes, mfuse::numSymbols(type), type.getElementType());
  QX_ASSIGN_OR_RETURN(ValueId id,
                      writer.addInner("aten.permute.default", {writer.tensor(matrix), dimList(order)}, swapped));
  return Argument(TensorRef{id});
}

Status writeMatmul(GraphWriter& writer, mfuse::MatmulOp op) {
  if (op.getActivation() || op.getResidual() || op.getMultiplier() || op.getScale()) {
    return unimplemented("mfuse.matmul with a scale, an activation, a multiplier or a residual");
  }
  Argument lhs = writer.tensor(op.getLhs()), rhs = writer.tensor(op.getRhs());
  if (op.getTransposeLhs()) {
    QX_ASSIGN_OR_RETURN(lhs, transposed(writer, op.getLhs()));
  }
  bool linear =
      typeOf(op.getRhs()).getRank() == 2 && (op.getBias() || op.getTransposeRhs() || op.getType().getRank() > 2);
  if (linear != op.getTransposeRhs()) {
    QX_ASSIGN_OR_RETURN(rhs, transposed(writer, op.getRhs()));
  }
  if (linear) {
    Argument bias = op.getBias() ? writer.tensor(op.getBias()) : Argument();
    return writer.add("aten.linear.default", {lhs, rhs, bias}, op->getResults());
  }
  const char* name = op.getType().getRank() == 2   ? "aten.mm.default"
                     : op.getType().getRank() == 3 ? "aten.bmm.default"
                                                   : "aten.matmul.default";
  if (!op.getBias()) return writer.add(name, {lhs, rhs}, op->getResults());
  QX_ASSIGN_OR_RETURN(ValueId product, writer.addInner(name, {lhs, rhs}, op.getType()));
  return writer.add("aten.add.Tensor", {TensorRef{product}, writer.tensor(op.getBias()), Dim{1}}, op->getResults());
}

Argument optionalTensor(GraphWriter& writer, mlir::Value value) { return value ? writer.tensor(value) : Argument(); }

Status writeLayerNorm(GraphWriter& writer, mfuse::LayerNormOp op) {
  if (!op.getCorrection().isZero() || op.getEpsOutside()) {
    return unimplemented("mfuse.layer_norm with a correction or eps outside the root; decompose it first");
  }
  QX_ASSIGN_OR_RETURN(std::vector<Dim> shape, writer.shape(op.getType()));
  shape.erase(shape.begin(), shape.end() - static_cast<int64_t>(op.getNumDims()));
  return writer.add("aten.layer_norm.default",
                    {writer.tensor(op.getInput()), std::move(shape), optionalTensor(writer, op.getWeight()),
                     optionalTensor(writer, op.getBias()), op.getEps().convertToDouble(), true},
                    op->getResults());
}

template <typename Norm>
Status writeRmsNorm(GraphWriter& writer, Norm op, Argument input, mlir::Value result) {
  QX_ASSIGN_OR_RETURN(std::vector<Dim> shape, writer.shape(typeOf(result)));
  return writer.add("aten.rms_norm.default",
                    {std::move(input), std::vector<Dim>{shape.back()}, optionalTensor(writer, op.getWeight()),
                     op.getEps().convertToDouble()},
                    result);
}

Status writeRearrangement(GraphWriter& writer, mlir::Operation& op) {
  auto result = typeOf(op.getResult(0));
  QX_ASSIGN_OR_RETURN(std::vector<Dim> shape, writer.shape(result));
  if (auto slice = llvm::dyn_cast<mfuse::SliceOp>(op)) return writeSlice(writer, slice);
  if (auto permute = llvm::dyn_cast<mfuse::PermuteOp>(op)) {
    return writer.add("aten.permute.default", {writer.tensor(permute.getInput()), dimList(permute.getPermutation())},
                      op.getResults());
  }
  if (auto cat = llvm::dyn_cast<mfuse::CatOp>(op)) {
    std::vector<TensorRef> inputs;
    for (mlir::Value input : cat.getInputs()) inputs.push_back({writer.value(input)});
    return writer.add("aten.cat.default", {std::move(inputs), known(static_cast<int64_t>(cat.getDim()))},
                      op.getResults());
  }
  Argument input = writer.tensor(op.getOperand(0));
  if (llvm::isa<mfuse::ReshapeOp>(op))
    return writer.add("aten.reshape.default", {input, std::move(shape)}, op.getResults());
  return writer.add("aten.expand.default", {input, std::move(shape), false}, op.getResults());
}

}  // namespace

Status writeTensorOperation(GraphWriter& writer, mlir::Operation& op) {
  if (op.hasTrait<mfuse::Rearrange>()) return writeRearrangement(writer, op);
  if (auto full = llvm::dyn_cast<mfuse::FullOp>(op)) return writeFull(writer, full);
  if (auto iota = llvm::dyn_cast<mfuse::IotaOp>(op)) return writeIota(writer, iota);
  if (auto reduce = llvm::dyn_cast<mfuse::ReduceOp>(op)) return writeReduce(writer, reduce);
  if (auto matmul = llvm::dyn_cast<mfuse::MatmulOp>(op)) return writeMatmul(writer, matmul);
  if (auto norm = llvm::dyn_cast<mfuse::LayerNormOp>(op)) return writeLayerNorm(writer, norm);
  if (auto norm = llvm::dyn_cast<mfuse::RmsNormOp>(op)) {
    return writeRmsNorm(writer, norm, writer.tensor(norm.getInput()), norm.getResult());
  }
  if (auto norm = llvm::dyn_cast<mfuse::AddRmsNormOp>(op)) {
    std::vector<Argument> sum = {writer.tensor(norm.getInput()), writer.tensor(norm.getResidual()), Dim{1}};
    QX_RETURN_IF_ERROR(writer.add("aten.add.Tensor", std::move(sum), norm.getSum()));
    return writeRmsNorm(writer, norm, writer.tensor(norm.getSum()), norm.getResult());
  }
  if (auto variance = llvm::dyn_cast<mfuse::VarianceOp>(op)) {
    return writer.add("aten.var.correction",
                      {writer.tensor(variance.getInput()), dimList(variance.getDims()),
                       variance.getCorrection().convertToDouble(), variance.getKeepdim()},
                      op.getResults());
  }
  if (auto softmax = llvm::dyn_cast<mfuse::SoftmaxOp>(op)) {
    return writer.add(softmax.getLogarithm() ? "aten._log_softmax.default" : "aten._softmax.default",
                      {writer.tensor(softmax.getInput()), known(static_cast<int64_t>(softmax.getDim())), false},
                      op.getResults());
  }
  return unimplemented("no operator of PyTorch is " + op.getName().getStringRef().str() + "; decompose it first");
}

}  // namespace qx::compiler
