// Transcendental functions of f32 as LLVM IR, on a scalar or on a vector. Same formulas and error bounds as
// quincunx/kernels/elementwise/vector_math-inl.h, in units in the last place: exp 1, log 1, erf 1.5, tanh 2,
// sigmoid 2.5. NaN gives NaN, infinities give the limits, denormals are kept.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <initializer_list>

namespace qx::compiler {

class VectorMath {
 public:
  // With `has_fma` the polynomials use fused multiply-add.
  VectorMath(llvm::IRBuilder<>& builder, bool has_fma) : b_(builder), has_fma_(has_fma) {}

  llvm::Value* exp(llvm::Value* x);
  llvm::Value* log(llvm::Value* x);
  llvm::Value* erf(llvm::Value* x);
  llvm::Value* tanh(llvm::Value* x);
  llvm::Value* sigmoid(llvm::Value* x);
  // Calls the C library's function `name` for each element: f32 ("sinf") or f64 ("sin"), one or two arguments.
  llvm::Value* callEach(const char* name, llvm::ArrayRef<llvm::Value*> arguments);

 private:
  struct ExpParts {
    llvm::Value* reduced;
    llvm::Value* exponent;  // int32
  };
  llvm::Value* number(llvm::Value* like, double value);
  llvm::Value* integer(llvm::Value* like, int32_t value);
  llvm::Value* mulAdd(llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* polynomial(llvm::Value* x, std::initializer_list<double> coefficients);
  llvm::Value* powerOfTwo(llvm::Value* exponent);
  llvm::Value* lesserOf(llvm::Value* x, double bound);
  llvm::Value* greaterOf(llvm::Value* x, double bound);
  llvm::Value* keepNan(llvm::Value* x, llvm::Value* y);
  llvm::Type* integersLike(llvm::Value* x);
  ExpParts reducedExp(llvm::Value* x, bool compensated);
  llvm::Value* expOfNonPositive(llvm::Value* x);

  llvm::IRBuilder<>& b_;
  bool has_fma_;
};

}  // namespace qx::compiler
