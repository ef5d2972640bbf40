#include "quincunx/compiler/codegen/vector_math.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <limits>
#include <vector>

namespace qx::compiler {

using llvm::Intrinsic::copysign;
using llvm::Intrinsic::fabs;

llvm::Value* VectorMath::number(llvm::Value* like, double value) {
  return llvm::ConstantFP::get(like->getType(), value);
}

llvm::Type* VectorMath::integersLike(llvm::Value* x) { return x->getType()->getWithNewType(b_.getInt32Ty()); }

llvm::Value* VectorMath::integer(llvm::Value* like, int32_t value) {
  return llvm::ConstantInt::getSigned(integersLike(like), value);
}

llvm::Value* VectorMath::mulAdd(llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  if (!has_fma_) return b_.CreateFAdd(b_.CreateFMul(a, b), c);
  return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

llvm::Value* VectorMath::polynomial(llvm::Value* x, std::initializer_list<double> coefficients) {
  const double* c = coefficients.end() - 1;
  llvm::Value* sum = number(x, *c);
  while (c != coefficients.begin()) sum = mulAdd(sum, x, number(x, *--c));
  return sum;
}

// 2^n for -126 <= n <= 127.
llvm::Value* VectorMath::powerOfTwo(llvm::Value* exponent) {
  llvm::Value* const biased = b_.CreateAdd(exponent, llvm::ConstantInt::get(exponent->getType(), 127));
  llvm::Type* const floats = exponent->getType()->getWithNewType(b_.getFloatTy());
  return b_.CreateBitCast(b_.CreateShl(biased, 23), floats);
}

// The bound where x is NaN.
llvm::Value* VectorMath::lesserOf(llvm::Value* x, double bound) {
  llvm::Value* const limit = number(x, bound);
  return b_.CreateSelect(b_.CreateFCmpOLT(x, limit), x, limit);
}

llvm::Value* VectorMath::greaterOf(llvm::Value* x, double bound) {
  llvm::Value* const limit = number(x, bound);
  return b_.CreateSelect(b_.CreateFCmpOGT(x, limit), x, limit);
}

llvm::Value* VectorMath::keepNan(llvm::Value* x, llvm::Value* y) {
  return b_.CreateSelect(b_.CreateFCmpORD(x, x), y, x);
}

// exp(x) = 2^n * reduced for -104 <= x <= 89: within 0.55 units with `compensated`, 1 without.
VectorMath::ExpParts VectorMath::reducedExp(llvm::Value* x, bool compensated) {
  llvm::Value* const nf = b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, b_.CreateFMul(x, number(x, 1.44269504f)));
  llvm::Value* const n = b_.CreateFPToSI(nf, integersLike(x));
  // The first part of ln 2 has nine bits: its product with n is exact without fused multiply-add too.
  llvm::Value* const coarse = mulAdd(nf, number(x, -0.693359375f), x);
  llvm::Value* const r = mulAdd(nf, number(x, 2.12194440e-4f), coarse);
  llvm::Value* const curved =
      polynomial(r, {4.999999404e-01f, 1.666652113e-01f, 4.166838899e-02f, 8.368715644e-03f, 1.381460228e-03f});
  llvm::Value* const one = number(x, 1.0);
  llvm::Value* const square = b_.CreateFMul(r, r);
  if (!compensated) return {b_.CreateFAdd(one, mulAdd(square, curved, r)), n};
  // What rounding took from r, and from 1 + r, joins the small terms: only the last addition rounds noticeably.
  llvm::Value* const lost = mulAdd(nf, number(x, 2.12194440e-4f), b_.CreateFSub(coarse, r));
  llvm::Value* const head = b_.CreateFAdd(one, r);
  llvm::Value* const rest = b_.CreateFAdd(b_.CreateFSub(r, b_.CreateFSub(head, one)), lost);
  return {b_.CreateFAdd(head, mulAdd(square, curved, rest)), n};
}

llvm::Value* VectorMath::exp(llvm::Value* x) {
  // exp(-104) rounds to 0 and exp(89) to infinity.
  llvm::Value* const clamped = greaterOf(lesserOf(x, 89.0), -104.0);
  const ExpParts parts = reducedExp(clamped, /*compensated=*/true);
  // Two factors: 2^n itself is not a normal number at either end.
  llvm::Value* const half = b_.CreateAShr(parts.exponent, 1);
  llvm::Value* const other = b_.CreateSub(parts.exponent, half);
  llvm::Value* const y = b_.CreateFMul(b_.CreateFMul(parts.reduced, powerOfTwo(half)), powerOfTwo(other));
  return keepNan(x, y);
}

// exp(x) for x <= 0, zero below x = -87.
llvm::Value* VectorMath::expOfNonPositive(llvm::Value* x) {
  const ExpParts parts = reducedExp(greaterOf(x, -87.0), /*compensated=*/false);
  llvm::Value* const y = b_.CreateFMul(parts.reduced, powerOfTwo(parts.exponent));
  llvm::Value* const scaled = b_.CreateSelect(b_.CreateFCmpOLT(x, number(x, -87.0)), number(x, 0.0), y);
  return keepNan(x, scaled);
}

llvm::Value* VectorMath::log(llvm::Value* x) {
  llvm::Value* const denormal = b_.CreateFCmpOLT(x, number(x, std::numeric_limits<float>::min()));
  llvm::Value* const normal = b_.CreateSelect(denormal, b_.CreateFMul(x, number(x, 0x1p23f)), x);
  llvm::Value* const bits = b_.CreateBitCast(normal, integersLike(x));
  // Exponent and mantissa, the mantissa within [sqrt(1/2), sqrt(2)).
  llvm::Value* const offset = b_.CreateSub(bits, integer(x, 0x3f3504f3));
  llvm::Value* const exponent = b_.CreateAShr(offset, 23);
  llvm::Value* const mantissa = b_.CreateAdd(b_.CreateAnd(offset, integer(x, 0x007fffff)), integer(x, 0x3f3504f3));
  llvm::Value* const scale = b_.CreateSelect(denormal, number(x, 23.0), number(x, 0.0));
  llvm::Value* const e = b_.CreateFSub(b_.CreateSIToFP(exponent, x->getType()), scale);
  llvm::Value* const f = b_.CreateFSub(b_.CreateBitCast(mantissa, x->getType()), number(x, 1.0));

  llvm::Value* const curved =
      polynomial(f, {3.333331347e-01f, -2.500000894e-01f, 2.000211924e-01f, -1.666799635e-01f, 1.421955228e-01f,
                     -1.240558922e-01f, 1.188816279e-01f, -1.167565137e-01f, 6.746638566e-02f});
  llvm::Value* const square = b_.CreateFMul(f, f);
  llvm::Value* y = b_.CreateFMul(b_.CreateFMul(square, f), curved);
  y = mulAdd(e, number(x, -2.12194440e-4f), y);
  y = mulAdd(number(x, -0.5), square, y);
  y = mulAdd(e, number(x, 0.693359375f), b_.CreateFAdd(f, y));

  const double infinity = std::numeric_limits<double>::infinity();
  y = b_.CreateSelect(b_.CreateFCmpOLT(x, number(x, infinity)), y, x);  // +inf and NaN
  llvm::Value* const nan = number(x, std::numeric_limits<double>::quiet_NaN());
  y = b_.CreateSelect(b_.CreateFCmpOLT(x, number(x, 0.0)), nan, y);
  return b_.CreateSelect(b_.CreateFCmpOEQ(x, number(x, 0.0)), number(x, -infinity), y);
}

llvm::Value* VectorMath::erf(llvm::Value* x) {
  llvm::Value* const t = b_.CreateUnaryIntrinsic(fabs, x);
  llvm::Value* const small =
      mulAdd(x,
             polynomial(b_.CreateFMul(x, x), {1.283791661e-01f, -3.761263192e-01f, 1.128368750e-01f, -2.685894258e-02f,
                                              5.199907813e-03f, -8.130021743e-04f, 8.316806634e-05f}),
             x);
  // log(erfc(t)) for 0.92 <= t <= 3.95; erf rounds to 1 beyond.
  llvm::Value* const capped = lesserOf(t, 3.95f);
  llvm::Value* const exponent =
      polynomial(capped, {-1.956749620e-04f, -1.127675653e+00f, -6.371822357e-01f, -1.039315984e-01f, 2.222692221e-02f,
                          -3.043218050e-03f, 1.959373039e-04f});
  llvm::Value* const large = b_.CreateFSub(number(x, 1.0), expOfNonPositive(exponent));
  llvm::Value* const is_large = b_.CreateFCmpOGT(t, number(x, 0.925f));
  return keepNan(x, b_.CreateSelect(is_large, b_.CreateBinaryIntrinsic(copysign, large, x), small));
}

llvm::Value* VectorMath::tanh(llvm::Value* x) {
  llvm::Value* const t = b_.CreateUnaryIntrinsic(fabs, x);
  llvm::Value* const square = b_.CreateFMul(x, x);
  llvm::Value* const small = mulAdd(b_.CreateFMul(x, square),
                                    polynomial(square, {-3.333333135e-01f, 1.333319694e-01f, -5.394551903e-02f,
                                                        2.169368044e-02f, -8.159555495e-03f, 2.126227133e-03f}),
                                    x);
  llvm::Value* const one = number(x, 1.0);
  // (1 - e) / (1 + e) written as 1 - 2e / (1 + e): the error of e = exp(-2t) is damped.
  llvm::Value* const e = expOfNonPositive(b_.CreateFMul(number(x, -2.0), t));
  llvm::Value* const quotient = b_.CreateFDiv(b_.CreateFMul(number(x, 2.0), e), b_.CreateFAdd(one, e));
  llvm::Value* const large = b_.CreateFSub(one, quotient);
  llvm::Value* const is_large = b_.CreateFCmpOGT(t, number(x, 0.625f));
  return b_.CreateSelect(is_large, b_.CreateBinaryIntrinsic(copysign, large, x), small);
}

// 1 / (1 + exp(-x)), without overflow: exp is taken of -|x| only.
llvm::Value* VectorMath::sigmoid(llvm::Value* x) {
  llvm::Value* const one = number(x, 1.0);
  llvm::Value* const e = exp(b_.CreateFNeg(b_.CreateUnaryIntrinsic(fabs, x)));
  llvm::Value* const numerator = b_.CreateSelect(b_.CreateFCmpOLT(x, number(x, 0.0)), e, one);
  return b_.CreateFDiv(numerator, b_.CreateFAdd(one, e));
}

llvm::Value* VectorMath::callEach(const char* name, llvm::ArrayRef<llvm::Value*> arguments) {
  llvm::Type* const type = arguments[0]->getType();
  llvm::Type* const element = type->getScalarType();
  const std::vector<llvm::Type*> parameters(arguments.size(), element);
  auto callee = b_.GetInsertBlock()->getModule()->getOrInsertFunction(
      name, llvm::FunctionType::get(element, parameters, /*isVarArg=*/false));
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  if (vector == nullptr) return b_.CreateCall(callee, arguments);
  llvm::Value* result = llvm::PoisonValue::get(type);
  for (uint64_t lane = 0; lane < vector->getNumElements(); ++lane) {
    std::vector<llvm::Value*> elements;
    for (llvm::Value* argument : arguments) elements.push_back(b_.CreateExtractElement(argument, lane));
    result = b_.CreateInsertElement(result, b_.CreateCall(callee, elements), lane);
  }
  return result;
}

}  // namespace qx::compiler
