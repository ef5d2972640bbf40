#include "quincunx/compiler/codegen/lane_operations.h"

#include <llvm/IR/Intrinsics.h>

#include <limits>

#include "quincunx/base/check.h"

namespace qx::compiler {
namespace {

bool isUnsigned(DType dtype) {
  return dtype == DType::kBool || dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32 ||
         dtype == DType::kUInt64;
}

bool isHalf(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

bool sumsInDouble(Opcode reduction, DType dtype) {
  return is_floating_point(dtype) && (reduction == Opcode::kReduceSum || reduction == Opcode::kReduceProd);
}

}  // namespace

llvm::Type* LaneOperations::registerType(DType dtype) {
  if (dtype == DType::kBool) return b_.getInt1Ty();
  if (dtype == DType::kFloat64) return b_.getDoubleTy();
  if (is_floating_point(dtype)) return b_.getFloatTy();
  return b_.getIntNTy(static_cast<unsigned>(dtype_size_bytes(dtype) * 8));
}

llvm::Type* LaneOperations::memoryType(DType dtype) {
  if (dtype == DType::kFloat32) return b_.getFloatTy();
  if (dtype == DType::kFloat64) return b_.getDoubleTy();
  return b_.getIntNTy(static_cast<unsigned>(dtype_size_bytes(dtype) * 8));
}

llvm::Type* LaneOperations::like(llvm::Value* value, llvm::Type* element) {
  const auto* vector = llvm::dyn_cast<llvm::VectorType>(value->getType());
  return vector == nullptr ? element : llvm::VectorType::get(element, vector->getElementCount());
}

llvm::Value* LaneOperations::fromMemory(llvm::Value* loaded, DType dtype) {
  switch (dtype) {
    case DType::kBool: return b_.CreateICmpNE(loaded, llvm::Constant::getNullValue(loaded->getType()));
    case DType::kFloat16:
      return b_.CreateFPExt(b_.CreateBitCast(loaded, like(loaded, b_.getHalfTy())), like(loaded, b_.getFloatTy()));
    case DType::kBFloat16:
      return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(loaded, like(loaded, b_.getInt32Ty())), 16),
                              like(loaded, b_.getFloatTy()));
    default: return loaded;
  }
}

llvm::Value* LaneOperations::toMemory(llvm::Value* value, DType dtype) {
  switch (dtype) {
    case DType::kBool: return b_.CreateZExt(value, like(value, b_.getInt8Ty()));
    case DType::kFloat16:
      return b_.CreateBitCast(b_.CreateFPTrunc(value, like(value, b_.getHalfTy())), like(value, b_.getInt16Ty()));
    case DType::kBFloat16: {
      // To nearest even by integers: the hardware's conversion would take denormals for zero.
      llvm::Type* const words = like(value, b_.getInt32Ty());
      llvm::Value* const bits = b_.CreateBitCast(value, words);
      llvm::Value* const odd = b_.CreateAnd(b_.CreateLShr(bits, 16), llvm::ConstantInt::get(words, 1));
      llvm::Value* const rounded =
          b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(bits, odd), llvm::ConstantInt::get(words, 0x7fff)), 16);
      llvm::Value* const quiet = llvm::ConstantInt::get(words, 0x7fc0);
      return b_.CreateTrunc(b_.CreateSelect(b_.CreateFCmpUNO(value, value), quiet, rounded),
                            like(value, b_.getInt16Ty()));
    }
    default: return value;
  }
}

llvm::Value* LaneOperations::constant(const Instruction& code, int lanes) {
  llvm::Type* const element = registerType(code.dtype);
  llvm::Type* const type = lanes == 0 ? element : llvm::FixedVectorType::get(element, lanes);
  if (is_floating_point(code.dtype)) return llvm::ConstantFP::get(type, code.number);
  if (code.dtype == DType::kBool) return llvm::ConstantInt::get(type, code.index != 0 ? 1 : 0);
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(code.index), /*isSigned=*/true, /*implicitTrunc=*/true);
}

llvm::Value* LaneOperations::roundTo(llvm::Value* value, DType half) { return fromMemory(toMemory(value, half), half); }

llvm::Value* LaneOperations::cast(llvm::Value* value, DType from, DType to) {
  if (from == to) return value;
  llvm::Type* const type = like(value, registerType(to));
  llvm::Value* const zero = llvm::Constant::getNullValue(value->getType());
  llvm::Value* converted = nullptr;
  if (is_floating_point(from)) {
    if (to == DType::kBool) return b_.CreateFCmpUNE(value, zero);
    if (is_floating_point(to)) {
      converted = b_.CreateFPCast(value, type);
    } else {
      // Saturates, where the plain conversion would be undefined.
      const auto saturating = isUnsigned(to) ? llvm::Intrinsic::fptoui_sat : llvm::Intrinsic::fptosi_sat;
      return b_.CreateIntrinsic(saturating, {type, value->getType()}, {value});
    }
  } else if (to == DType::kBool) {
    return b_.CreateICmpNE(value, zero);
  } else if (is_floating_point(to)) {
    converted = isUnsigned(from) ? b_.CreateUIToFP(value, type) : b_.CreateSIToFP(value, type);
  } else {
    return b_.CreateIntCast(value, type, /*isSigned=*/!isUnsigned(from));
  }
  return isHalf(to) ? roundTo(converted, to) : converted;
}

llvm::Value* LaneOperations::apply(Opcode opcode, DType type, llvm::ArrayRef<llvm::Value*> operands) {
  if (operands.size() == 3) return b_.CreateSelect(operands[0], operands[1], operands[2]);
  if (operands.size() == 1) return applyUnary(opcode, type, operands[0]);
  if (opcode >= Opcode::kEq && opcode <= Opcode::kGe) return compare(opcode, type, operands[0], operands[1]);
  if (is_floating_point(type)) return applyFloat(opcode, operands[0], operands[1]);
  return applyInteger(opcode, type, operands[0], operands[1]);
}

llvm::Value* LaneOperations::applyUnary(Opcode opcode, DType type, llvm::Value* x) {
  if (opcode == Opcode::kNot) return b_.CreateNot(x);
  if (is_floating_point(type)) return applyFunction(opcode, x);
  llvm::Value* const zero = llvm::Constant::getNullValue(x->getType());
  switch (opcode) {
    case Opcode::kNeg: return b_.CreateNeg(x);
    case Opcode::kAbs:
      if (isUnsigned(type)) return x;
      return b_.CreateSelect(b_.CreateICmpSLT(x, zero), b_.CreateNeg(x), x);
    case Opcode::kSign: {
      llvm::Value* const positive =
          b_.CreateZExt(isUnsigned(type) ? b_.CreateICmpNE(x, zero) : b_.CreateICmpSGT(x, zero), x->getType());
      if (isUnsigned(type)) return positive;
      return b_.CreateSub(positive, b_.CreateZExt(b_.CreateICmpSLT(x, zero), x->getType()));
    }
    case Opcode::kIsNan: return llvm::Constant::getNullValue(like(x, b_.getInt1Ty()));
    case Opcode::kFloor:
    case Opcode::kCeil:
    case Opcode::kRound:
    case Opcode::kTrunc: return x;
    default: QX_CHECK_MESSAGE(false, "no such function of integers");
  }
}

llvm::Value* LaneOperations::applyFunction(Opcode opcode, llvm::Value* x) {
  using llvm::Intrinsic::ID;
  const bool is_double = x->getType()->getScalarType()->isDoubleTy();
  llvm::Value* const zero = llvm::ConstantFP::get(x->getType(), 0.0);
  llvm::Value* const one = llvm::ConstantFP::get(x->getType(), 1.0);
  switch (opcode) {
    case Opcode::kNeg: return b_.CreateFNeg(x);
    case Opcode::kAbs: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
    case Opcode::kSqrt: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
    case Opcode::kRsqrt: return b_.CreateFDiv(one, b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
    case Opcode::kReciprocal: return b_.CreateFDiv(one, x);
    case Opcode::kFloor: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
    case Opcode::kCeil: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    case Opcode::kRound: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
    case Opcode::kTrunc: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
    case Opcode::kIsNan: return b_.CreateFCmpUNO(x, x);
    case Opcode::kSign: {
      llvm::Value* const unit = b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, one, x);
      return b_.CreateSelect(b_.CreateFCmpONE(x, zero), unit, zero);  // NaN gives 0, as PyTorch does
    }
    case Opcode::kExp: return is_double ? math_.callEach("exp", x) : math_.exp(x);
    case Opcode::kLog: return is_double ? math_.callEach("log", x) : math_.log(x);
    case Opcode::kErf: return is_double ? math_.callEach("erf", x) : math_.erf(x);
    case Opcode::kTanh: return is_double ? math_.callEach("tanh", x) : math_.tanh(x);
    case Opcode::kExpm1: return math_.callEach(is_double ? "expm1" : "expm1f", x);
    case Opcode::kLog1p: return math_.callEach(is_double ? "log1p" : "log1pf", x);
    case Opcode::kSin: return math_.callEach(is_double ? "sin" : "sinf", x);
    case Opcode::kCos: return math_.callEach(is_double ? "cos" : "cosf", x);
    case Opcode::kSigmoid:
      if (!is_double) return math_.sigmoid(x);
      return b_.CreateFDiv(one, b_.CreateFAdd(one, math_.callEach("exp", b_.CreateFNeg(x))));
    default: QX_CHECK_MESSAGE(false, "no such function of floats");
  }
}

// Python's a // b, as PyTorch computes it.
llvm::Value* LaneOperations::floorDivide(llvm::Value* a, llvm::Value* b) {
  llvm::Type* const type = a->getType();
  llvm::Value* const zero = llvm::ConstantFP::get(type, 0.0);
  llvm::Value* const one = llvm::ConstantFP::get(type, 1.0);
  llvm::Value* const rest = b_.CreateFRem(a, b);
  llvm::Value* quotient = b_.CreateFDiv(b_.CreateFSub(a, rest), b);
  llvm::Value* const signs_differ = b_.CreateXor(b_.CreateFCmpOLT(rest, zero), b_.CreateFCmpOLT(b, zero));
  llvm::Value* const lower = b_.CreateAnd(b_.CreateFCmpUNE(rest, zero), signs_differ);
  quotient = b_.CreateSelect(lower, b_.CreateFSub(quotient, one), quotient);
  llvm::Value* const floor = b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, quotient);
  llvm::Value* const above = b_.CreateFCmpOGT(b_.CreateFSub(quotient, floor), llvm::ConstantFP::get(type, 0.5));
  llvm::Value* result = b_.CreateSelect(above, b_.CreateFAdd(floor, one), floor);
  llvm::Value* const signed_zero = b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, zero, b_.CreateFDiv(a, b));
  result = b_.CreateSelect(b_.CreateFCmpOEQ(quotient, zero), signed_zero, result);
  return b_.CreateSelect(b_.CreateFCmpOEQ(b, zero), b_.CreateFDiv(a, b), result);
}

llvm::Value* LaneOperations::applyFloat(Opcode opcode, llvm::Value* a, llvm::Value* b) {
  switch (opcode) {
    case Opcode::kAdd: return b_.CreateFAdd(a, b);
    case Opcode::kSub: return b_.CreateFSub(a, b);
    case Opcode::kMul: return b_.CreateFMul(a, b);
    case Opcode::kDiv: return b_.CreateFDiv(a, b);
    case Opcode::kPow: return math_.callEach(a->getType()->getScalarType()->isDoubleTy() ? "pow" : "powf", {a, b});
    // A NaN in b fails the comparison and is taken; one in a is kept by the second test.
    case Opcode::kMax:
    case Opcode::kMin: {
      llvm::Value* const better = opcode == Opcode::kMax ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b);
      return b_.CreateSelect(b_.CreateOr(better, b_.CreateFCmpUNO(a, a)), a, b);
    }
    case Opcode::kFloorDiv: return floorDivide(a, b);
    case Opcode::kRemainder: {
      llvm::Value* const zero = llvm::ConstantFP::get(a->getType(), 0.0);
      llvm::Value* const rest = b_.CreateFRem(a, b);
      llvm::Value* const signs_differ = b_.CreateXor(b_.CreateFCmpOLT(rest, zero), b_.CreateFCmpOLT(b, zero));
      llvm::Value* const moved = b_.CreateAnd(b_.CreateFCmpUNE(rest, zero), signs_differ);
      return b_.CreateSelect(moved, b_.CreateFAdd(rest, b), rest);
    }
    default: QX_CHECK_MESSAGE(false, "no such operation on floats");
  }
}

// The quotient rounded down, or what is left over. Division by 0 gives 0, and by -1 the negative: neither may reach the
// division instruction, which would trap.
llvm::Value* LaneOperations::divideIntegers(Opcode opcode, DType type, llvm::Value* a, llvm::Value* b) {
  llvm::Value* const zero = llvm::Constant::getNullValue(a->getType());
  llvm::Value* const one = llvm::ConstantInt::get(a->getType(), 1);
  llvm::Value* const by_zero = b_.CreateICmpEQ(b, zero);
  llvm::Value* quotient = nullptr;
  if (isUnsigned(type)) {
    quotient = b_.CreateUDiv(a, b_.CreateSelect(by_zero, one, b));
  } else {
    llvm::Value* const by_minus_one = b_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(a->getType()));
    llvm::Value* const divisor = b_.CreateSelect(b_.CreateOr(by_zero, by_minus_one), one, b);
    quotient = b_.CreateSDiv(a, divisor);
    llvm::Value* const rest = b_.CreateSub(a, b_.CreateMul(quotient, divisor));
    llvm::Value* const lower =
        b_.CreateAnd(b_.CreateICmpNE(rest, zero), b_.CreateICmpSLT(b_.CreateXor(rest, divisor), zero));
    quotient = b_.CreateSelect(lower, b_.CreateSub(quotient, one), quotient);
    quotient = b_.CreateSelect(by_minus_one, b_.CreateNeg(a), quotient);
  }
  quotient = b_.CreateSelect(by_zero, zero, quotient);
  return opcode == Opcode::kFloorDiv ? quotient : b_.CreateSub(a, b_.CreateMul(quotient, b));
}

llvm::Value* LaneOperations::applyInteger(Opcode opcode, DType type, llvm::Value* a, llvm::Value* b) {
  switch (opcode) {
    case Opcode::kAdd: return type == DType::kBool ? b_.CreateOr(a, b) : b_.CreateAdd(a, b);
    case Opcode::kSub: return b_.CreateSub(a, b);
    case Opcode::kMul: return b_.CreateMul(a, b);
    case Opcode::kFloorDiv:
    case Opcode::kRemainder: return divideIntegers(opcode, type, a, b);
    case Opcode::kMax: return b_.CreateSelect(compare(Opcode::kGt, type, a, b), a, b);
    case Opcode::kMin: return b_.CreateSelect(compare(Opcode::kLt, type, a, b), a, b);
    case Opcode::kAnd: return b_.CreateAnd(a, b);
    case Opcode::kOr: return b_.CreateOr(a, b);
    case Opcode::kXor: return b_.CreateXor(a, b);
    default: QX_CHECK_MESSAGE(false, "no such operation on integers");
  }
}

llvm::Value* LaneOperations::compare(Opcode opcode, DType type, llvm::Value* a, llvm::Value* b) {
  using llvm::CmpInst;
  struct Predicates {
    CmpInst::Predicate floats, signed_integers, unsigned_integers;
  };
  static constexpr Predicates kTable[] = {
      {CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ},
      {CmpInst::FCMP_UNE, CmpInst::ICMP_NE, CmpInst::ICMP_NE},
      {CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT},
      {CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE},
      {CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT},
      {CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE},
  };
  const Predicates& row = kTable[static_cast<int>(opcode) - static_cast<int>(Opcode::kEq)];
  if (is_floating_point(type)) return b_.CreateFCmp(row.floats, a, b);
  return b_.CreateICmp(isUnsigned(type) ? row.unsigned_integers : row.signed_integers, a, b);
}

llvm::Value* LaneOperations::combine(Opcode reduction, DType dtype, llvm::Value* a, llvm::Value* b) {
  switch (reduction) {
    case Opcode::kReduceSum: return apply(Opcode::kAdd, dtype, {a, b});
    case Opcode::kReduceProd: return apply(Opcode::kMul, dtype, {a, b});
    case Opcode::kReduceMax: return apply(Opcode::kMax, dtype, {a, b});
    case Opcode::kReduceMin: return apply(Opcode::kMin, dtype, {a, b});
    default: QX_CHECK_MESSAGE(false, "no reduction");
  }
}

llvm::Constant* LaneOperations::identity(Opcode reduction, DType dtype) {
  llvm::Type* const type = accumulatorType(reduction, dtype);
  const bool max = reduction == Opcode::kReduceMax;
  if (reduction == Opcode::kReduceSum) return llvm::Constant::getNullValue(type);
  if (is_floating_point(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return llvm::ConstantFP::get(type, reduction == Opcode::kReduceProd ? 1.0 : max ? -infinity : infinity);
  }
  if (reduction == Opcode::kReduceProd) return llvm::ConstantInt::get(type, 1);
  const unsigned bits = type->getScalarSizeInBits();
  const bool is_signed = !isUnsigned(dtype);
  const llvm::APInt value = max ? (is_signed ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits))
                                : (is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits));
  return llvm::ConstantInt::get(type, value);
}

llvm::Type* LaneOperations::accumulatorType(Opcode reduction, DType dtype) {
  return sumsInDouble(reduction, dtype) ? b_.getDoubleTy() : registerType(dtype);
}

llvm::Value* LaneOperations::widen(Opcode reduction, DType dtype, llvm::Value* value) {
  if (!sumsInDouble(reduction, dtype)) return value;
  return b_.CreateFPCast(value, like(value, b_.getDoubleTy()));
}

llvm::Value* LaneOperations::narrow(Opcode reduction, DType dtype, llvm::Value* accumulator) {
  if (!sumsInDouble(reduction, dtype)) return accumulator;
  return b_.CreateFPCast(accumulator, like(accumulator, registerType(dtype)));
}

}  // namespace qx::compiler
