// Elementwise operations as PyTorch's operators.
#include "quincunx/compiler/dialect/shapes.h"
#include "quincunx/compiler/import/graph_writer.h"

namespace qx::compiler {
namespace {

using graph::Argument;
using graph::Dim;
using graph::TensorRef;
using graph::ValueId;
using mfuse::BinaryKind;
using mfuse::UnaryKind;

bool isScalar(mlir::Value value) { return !llvm::isa<mlir::RankedTensorType>(value.getType()); }

Status writeUnary(GraphWriter& writer, mfuse::UnaryOp op) {
  Argument input = writer.tensor(op.getInput());
  switch (op.getKind()) {
    case UnaryKind::gelu_erf: return writer.add("aten.gelu.default", {input, std::string("none")}, op->getResults());
    case UnaryKind::gelu_tanh: return writer.add("aten.gelu.default", {input, std::string("tanh")}, op->getResults());
    case UnaryKind::gelu_quick: {
      constexpr double kQuick = 1.702;
      auto type = op.getType();
      QX_ASSIGN_OR_RETURN(ValueId scaled, writer.addInner("aten.mul.Tensor", {input, kQuick}, type));
      QX_ASSIGN_OR_RETURN(ValueId gate, writer.addInner("aten.sigmoid.default", {TensorRef{scaled}}, type));
      return writer.add("aten.mul.Tensor", {input, TensorRef{gate}}, op->getResults());
    }
    default:
      return writer.add("aten." + stringifyUnaryKind(op.getKind()).str() + ".default", {input}, op->getResults());
  }
}

// A tensor of rank 0 that holds a scalar, where an operator takes none on this side.
Result<Argument> scalarTensor(GraphWriter& writer, mlir::Value scalar, mlir::RankedTensorType beside) {
  QX_ASSIGN_OR_RETURN(Argument value, writer.tensorOrScalar(scalar));
  mlir::Type element = beside.getElementType();
  // Rank 0 does not take part in type promotion: f32 keeps the scalar's digits beside half precision.
  if (llvm::isa<mlir::FloatType>(element) && element.getIntOrFloatBitWidth() < 32) {
    element = mlir::Float32Type::get(element.getContext());
  }
  QX_ASSIGN_OR_RETURN(DType dtype, mfuse::dtypeOf(element));
  std::vector<Argument> arguments = {std::vector<Dim>(), value, dtype, {}, {}, {}};
  QX_ASSIGN_OR_RETURN(
      ValueId id, writer.addInner("aten.full.default", std::move(arguments), mlir::RankedTensorType::get({}, element)));
  return Argument(TensorRef{id});
}

Status writeActivationProduct(GraphWriter& writer, mfuse::BinaryOp op) {
  if (isScalar(op.getLhs()) || isScalar(op.getRhs()))
    return unimplemented("mfuse.binary of an activation with a scalar");
  auto type = llvm::cast<mlir::RankedTensorType>(op.getLhs().getType());
  bool swiglu = op.getKind() == BinaryKind::swiglu;
  std::vector<Argument> arguments = {writer.tensor(op.getLhs())};
  if (!swiglu) arguments.push_back(std::string(op.getKind() == BinaryKind::geglu_tanh ? "tanh" : "none"));
  QX_ASSIGN_OR_RETURN(ValueId gate,
                      writer.addInner(swiglu ? "aten.silu.default" : "aten.gelu.default", std::move(arguments), type));
  return writer.add("aten.mul.Tensor", {TensorRef{gate}, writer.tensor(op.getRhs())}, op->getResults());
}

Status writeBinary(GraphWriter& writer, mfuse::BinaryOp op) {
  BinaryKind kind = op.getKind();
  if (mfuse::isComposite(kind)) return writeActivationProduct(writer, op);
  mlir::Value lhs = op.getLhs(), rhs = op.getRhs();
  if (isScalar(lhs) && (kind == BinaryKind::add || kind == BinaryKind::mul)) std::swap(lhs, rhs);
  QX_ASSIGN_OR_RETURN(Argument first, writer.tensorOrScalar(lhs));
  QX_ASSIGN_OR_RETURN(Argument second, writer.tensorOrScalar(rhs));
  if (kind == BinaryKind::pow) {
    const char* overload = isScalar(lhs) ? "Scalar" : isScalar(rhs) ? "Tensor_Scalar" : "Tensor_Tensor";
    return writer.add("aten.pow." + std::string(overload), {first, second}, op->getResults());
  }
  if (isScalar(lhs)) {
    QX_ASSIGN_OR_RETURN(first, scalarTensor(writer, lhs, op.getType()));
  }
  std::string name = "aten." + stringifyBinaryKind(kind).str();
  switch (kind) {
    case BinaryKind::add:
    case BinaryKind::sub: return writer.add(name + ".Tensor", {first, second, Dim{1}}, op->getResults());
    case BinaryKind::floor_div:
      return writer.add("aten.div.Tensor_mode", {first, second, std::string("floor")}, op->getResults());
    case BinaryKind::trunc_div:
      return writer.add("aten.div.Tensor_mode", {first, second, std::string("trunc")}, op->getResults());
    case BinaryKind::maximum:
    case BinaryKind::minimum:
    case BinaryKind::atan2: {
      if (isScalar(rhs)) {
        QX_ASSIGN_OR_RETURN(second, scalarTensor(writer, rhs, op.getType()));
      }
      return writer.add(name + ".default", {first, second}, op->getResults());
    }
    default: {
      bool plain = kind == BinaryKind::mul || kind == BinaryKind::div || !isScalar(rhs);
      return writer.add(name + (plain ? ".Tensor" : ".Scalar"), {first, second}, op->getResults());
    }
  }
}

Status writeCompare(GraphWriter& writer, mfuse::CompareOp op) {
  QX_ASSIGN_OR_RETURN(Argument first, writer.tensorOrScalar(op.getLhs()));
  QX_ASSIGN_OR_RETURN(Argument second, writer.tensorOrScalar(op.getRhs()));
  if (isScalar(op.getLhs())) {
    QX_ASSIGN_OR_RETURN(first,
                        scalarTensor(writer, op.getLhs(), llvm::cast<mlir::RankedTensorType>(op.getRhs().getType())));
  }
  std::string name = "aten." + stringifyPredicate(op.getPredicate()).str();
  return writer.add(name + (isScalar(op.getRhs()) ? ".Scalar" : ".Tensor"), {first, second}, op->getResults());
}

Status writeSelect(GraphWriter& writer, mfuse::SelectOp op) {
  QX_ASSIGN_OR_RETURN(Argument onTrue, writer.tensorOrScalar(op.getOnTrue()));
  QX_ASSIGN_OR_RETURN(Argument onFalse, writer.tensorOrScalar(op.getOnFalse()));
  if (isScalar(op.getOnTrue())) {
    QX_ASSIGN_OR_RETURN(onTrue, scalarTensor(writer, op.getOnTrue(), op.getType()));
  }
  if (isScalar(op.getOnFalse())) {
    QX_ASSIGN_OR_RETURN(onFalse, scalarTensor(writer, op.getOnFalse(), op.getType()));
  }
  return writer.add("aten.where.self", {writer.tensor(op.getCondition()), onTrue, onFalse}, op->getResults());
}

}  // namespace

Status writeElementwise(GraphWriter& writer, mlir::Operation& op) {
  if (auto unary = llvm::dyn_cast<mfuse::UnaryOp>(op)) return writeUnary(writer, unary);
  if (auto binary = llvm::dyn_cast<mfuse::BinaryOp>(op)) return writeBinary(writer, binary);
  if (auto compare = llvm::dyn_cast<mfuse::CompareOp>(op)) return writeCompare(writer, compare);
  if (auto select = llvm::dyn_cast<mfuse::SelectOp>(op)) return writeSelect(writer, select);
  auto cast = llvm::cast<mfuse::CastOp>(op);
  QX_ASSIGN_OR_RETURN(DType dtype, mfuse::dtypeOf(cast.getType().getElementType()));
  std::vector<Argument> arguments = {writer.tensor(cast.getInput()), dtype, {}, {}, {}, false, {}};
  return writer.add("aten._to_copy.default", std::move(arguments), op.getResults());
}

}  // namespace qx::compiler
