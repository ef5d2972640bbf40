#include "quincunx/compiler/codegen/elementwise_lowering.h"

#include <cmath>
#include <limits>

#include "quincunx/compiler/dialect/shapes.h"

namespace qx::compiler {
namespace {
namespace mf = qx::mfuse;

constexpr double kLn2 = 0.693147180559945309417;

bool isScalarOperand(mlir::Value value) { return !llvm::isa<mlir::RankedTensorType>(value.getType()); }

std::optional<Opcode> opcodeOf(mf::UnaryKind kind) {
  switch (kind) {
    case mf::UnaryKind::neg: return Opcode::kNeg;
    case mf::UnaryKind::abs: return Opcode::kAbs;
    case mf::UnaryKind::sign: return Opcode::kSign;
    case mf::UnaryKind::exp: return Opcode::kExp;
    case mf::UnaryKind::expm1: return Opcode::kExpm1;
    case mf::UnaryKind::log: return Opcode::kLog;
    case mf::UnaryKind::log1p: return Opcode::kLog1p;
    case mf::UnaryKind::sqrt: return Opcode::kSqrt;
    case mf::UnaryKind::rsqrt: return Opcode::kRsqrt;
    case mf::UnaryKind::reciprocal: return Opcode::kReciprocal;
    case mf::UnaryKind::sin: return Opcode::kSin;
    case mf::UnaryKind::cos: return Opcode::kCos;
    case mf::UnaryKind::tanh: return Opcode::kTanh;
    case mf::UnaryKind::erf: return Opcode::kErf;
    case mf::UnaryKind::sigmoid: return Opcode::kSigmoid;
    case mf::UnaryKind::floor: return Opcode::kFloor;
    case mf::UnaryKind::ceil: return Opcode::kCeil;
    case mf::UnaryKind::round: return Opcode::kRound;
    case mf::UnaryKind::trunc: return Opcode::kTrunc;
    case mf::UnaryKind::bitwise_not: return Opcode::kNot;
    case mf::UnaryKind::isnan: return Opcode::kIsNan;
    default: return std::nullopt;
  }
}

std::optional<Opcode> opcodeOf(mf::BinaryKind kind) {
  switch (kind) {
    case mf::BinaryKind::add: return Opcode::kAdd;
    case mf::BinaryKind::sub: return Opcode::kSub;
    case mf::BinaryKind::mul: return Opcode::kMul;
    case mf::BinaryKind::div: return Opcode::kDiv;
    case mf::BinaryKind::floor_div: return Opcode::kFloorDiv;
    case mf::BinaryKind::remainder: return Opcode::kRemainder;
    case mf::BinaryKind::maximum: return Opcode::kMax;
    case mf::BinaryKind::minimum: return Opcode::kMin;
    case mf::BinaryKind::bitwise_and: return Opcode::kAnd;
    case mf::BinaryKind::bitwise_or: return Opcode::kOr;
    case mf::BinaryKind::bitwise_xor: return Opcode::kXor;
    default: return std::nullopt;
  }
}

Opcode opcodeOf(mf::Predicate predicate) {
  switch (predicate) {
    case mf::Predicate::eq: return Opcode::kEq;
    case mf::Predicate::ne: return Opcode::kNe;
    case mf::Predicate::lt: return Opcode::kLt;
    case mf::Predicate::le: return Opcode::kLe;
    case mf::Predicate::gt: return Opcode::kGt;
    default: return Opcode::kGe;
  }
}

Status unsupported(mlir::Operation* op, const std::string& what) {
  return unimplemented(op->getName().getStringRef().str() + " " + what);
}

bool isUnaryLowered(mf::UnaryKind kind) {
  return opcodeOf(kind) || kind == mf::UnaryKind::relu || kind == mf::UnaryKind::isinf || kind == mf::UnaryKind::exp2 ||
         kind == mf::UnaryKind::log2;
}

Status canLowerBinary(mf::BinaryOp op) {
  const mf::BinaryKind kind = op.getKind();
  const bool is_float = is_floating_point(elementDType(op.getResult().getType()));
  const std::string name = mf::stringifyBinaryKind(kind).str();
  if (kind == mf::BinaryKind::pow) {
    if (is_float) return ok_status();
    const auto exponent = uniformNumber(op.getRhs());
    const bool small = exponent && (*exponent == 1 || *exponent == 2 || *exponent == 3);
    return small ? ok_status() : unsupported(op, "pow of integers with an exponent other than 1, 2 or 3");
  }
  if (kind == mf::BinaryKind::trunc_div && is_float) return ok_status();
  if (!opcodeOf(kind)) return unsupported(op, name);
  if (!is_float && (kind == mf::BinaryKind::floor_div || kind == mf::BinaryKind::remainder)) {
    // A zero among the divisors has to raise, which only the original operator does.
    const auto divisor = uniformNumber(op.getRhs());
    if (!divisor || *divisor == 0) return unsupported(op, name + " of integers by a divisor that may be 0");
  }
  return ok_status();
}

// An integer scalar that the tensor's dtype cannot hold is compared in a wider type by PyTorch.
Status scalarsFit(mlir::Operation* op) {
  DType dtype = DType::kFloat32;
  for (const mlir::Value operand : op->getOperands()) {
    if (!isScalarOperand(operand)) dtype = elementDType(operand.getType());
  }
  if (is_floating_point(dtype)) return ok_status();
  for (const mlir::Value operand : op->getOperands()) {
    const auto number = isScalarOperand(operand) ? uniformNumber(operand) : std::optional<double>(0);
    const double bound = std::ldexp(1.0, static_cast<int>(dtype_size_bytes(dtype)) * 8 - 1);
    if (!number || *number != std::floor(*number))
      return unsupported(op, "of integers with a number that is not known");
    if (dtype_size_bytes(dtype) < 8 && (*number < -bound || *number >= bound)) {
      return unsupported(op, "with a number that its dtype cannot hold");
    }
  }
  return ok_status();
}

int32_t lowerUnary(LoopProgram& program, mf::UnaryOp op, int32_t x) {
  const DType dtype = program.code[x].dtype;
  const mf::UnaryKind kind = op.getKind();
  switch (kind) {
    case mf::UnaryKind::relu: return program.add(Opcode::kMax, dtype, x, program.constant(dtype, 0));
    case mf::UnaryKind::exp2: return program.add(Opcode::kPow, dtype, program.constant(dtype, 2), x);
    case mf::UnaryKind::log2:
      return program.add(Opcode::kMul, dtype, program.add(Opcode::kLog, dtype, x), program.constant(dtype, 1 / kLn2));
    case mf::UnaryKind::isnan: return program.add(Opcode::kIsNan, DType::kBool, x);
    case mf::UnaryKind::isinf: {
      if (!is_floating_point(dtype)) return program.constant(DType::kBool, 0);
      const int32_t infinity = program.constant(dtype, std::numeric_limits<double>::infinity());
      return program.add(Opcode::kEq, DType::kBool, program.add(Opcode::kAbs, dtype, x), infinity);
    }
    default: return program.add(*opcodeOf(kind), dtype, x);
  }
}

// PyTorch computes these powers by multiplication and roots too.
int32_t lowerPower(LoopProgram& program, mlir::Value exponent, int32_t x, int32_t power) {
  const DType dtype = program.code[x].dtype;
  const std::optional<double> number = uniformNumber(exponent);
  if (!number) return program.add(Opcode::kPow, dtype, x, power);
  if (*number == 1) return x;
  if (*number == 2) return program.add(Opcode::kMul, dtype, x, x);
  if (*number == 3) return program.add(Opcode::kMul, dtype, program.add(Opcode::kMul, dtype, x, x), x);
  if (*number == 0.5) return program.add(Opcode::kSqrt, dtype, x);
  if (*number == -0.5) return program.add(Opcode::kRsqrt, dtype, x);
  if (*number == -1) return program.add(Opcode::kReciprocal, dtype, x);
  return program.add(Opcode::kPow, dtype, x, power);
}

DType comparedDType(mlir::Operation* op) {
  const auto tensor = llvm::find_if_not(op->getOperands(), isScalarOperand);
  return tensor == op->operand_end() ? DType::kFloat32 : elementDType((*tensor).getType());
}

// What memory would hold. A maximum that was stored is equal to the element that it is of, which a gradient asks.
int32_t asStored(LoopProgram& program, int32_t value, DType dtype) {
  const DType carried = program.code[static_cast<size_t>(value)].dtype;
  if (computeType(dtype) == dtype || carried == dtype) return value;
  return program.add(Opcode::kCast, carried, program.add(Opcode::kCast, dtype, value));
}

}  // namespace

DType computeType(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16 ? DType::kFloat32 : dtype;
}

DType elementDType(mlir::Type type) {
  const auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(type);
  return mf::dtypeOf(tensor ? tensor.getElementType() : type).value();
}

std::optional<double> uniformNumber(mlir::Value value) {
  mlir::Operation* const op = value.getDefiningOp();
  if (op == nullptr) return std::nullopt;
  mlir::Attribute attribute;
  if (auto scalar = llvm::dyn_cast<mf::ScalarOp>(op)) attribute = scalar.getValue();
  if (auto full = llvm::dyn_cast<mf::FullOp>(op)) return uniformNumber(full.getValue());
  if (auto constant = llvm::dyn_cast<mf::ConstantOp>(op)) {
    const auto elements = llvm::dyn_cast<mlir::DenseElementsAttr>(constant.getValue());
    if (elements && elements.isSplat()) attribute = elements.getSplatValue<mlir::Attribute>();
  }
  if (auto number = llvm::dyn_cast_or_null<mlir::FloatAttr>(attribute)) return number.getValue().convertToDouble();
  if (auto number = llvm::dyn_cast_or_null<mlir::IntegerAttr>(attribute)) {
    const bool is_unsigned = number.getType().isUnsignedInteger() || number.getType().isInteger(1);
    const llvm::APInt bits = number.getValue();
    return is_unsigned ? static_cast<double>(bits.getZExtValue()) : static_cast<double>(bits.getSExtValue());
  }
  return std::nullopt;
}

Status canLowerElementwise(mlir::Operation* op) {
  if (llvm::isa<mf::CastOp>(op)) return ok_status();
  if (auto unary = llvm::dyn_cast<mf::UnaryOp>(op)) {
    if (isUnaryLowered(unary.getKind())) return ok_status();
    return unsupported(op, mf::stringifyUnaryKind(unary.getKind()).str());
  }
  if (auto binary = llvm::dyn_cast<mf::BinaryOp>(op)) QX_RETURN_IF_ERROR(canLowerBinary(binary));
  return scalarsFit(op);
}

int32_t lowerElementwise(LoopProgram& program, mlir::Operation* op, llvm::ArrayRef<int32_t> operands) {
  if (auto unary = llvm::dyn_cast<mf::UnaryOp>(op)) return lowerUnary(program, unary, operands[0]);
  if (auto cast = llvm::dyn_cast<mf::CastOp>(op)) {
    const DType from = elementDType(cast.getInput().getType());
    const DType to = elementDType(cast.getResult().getType());
    const DType carried = program.code[operands[0]].dtype;
    if (from == to) return operands[0];
    // To half precision and back: the value is rounded, and carried as f32 again.
    int32_t value = carried == to ? operands[0] : program.add(Opcode::kCast, to, operands[0]);
    if (computeType(to) != to) value = program.add(Opcode::kCast, computeType(to), value);
    return value;
  }
  if (llvm::isa<mf::SelectOp>(op)) {
    return program.add(Opcode::kSelect, program.code[operands[1]].dtype, operands[0], operands[1], operands[2]);
  }
  const DType dtype = program.code[operands[0]].dtype;
  if (auto compare = llvm::dyn_cast<mf::CompareOp>(op)) {
    const DType compared = comparedDType(op);
    const int32_t lhs = asStored(program, operands[0], compared);
    return program.add(opcodeOf(compare.getPredicate()), DType::kBool, lhs, asStored(program, operands[1], compared));
  }
  auto binary = llvm::cast<mf::BinaryOp>(op);
  if (binary.getKind() == mf::BinaryKind::pow) return lowerPower(program, binary.getRhs(), operands[0], operands[1]);
  if (binary.getKind() == mf::BinaryKind::trunc_div) {
    return program.add(Opcode::kTrunc, dtype, program.add(Opcode::kDiv, dtype, operands[0], operands[1]));
  }
  return program.add(*opcodeOf(binary.getKind()), dtype, operands[0], operands[1]);
}

}  // namespace qx::compiler
