// A pattern's candidate while it is matched: the operations it consists of, the guards that all patterns share, and the
// word on what became of it.
#pragma once

#include <optional>

#include "llvm/ADT/SmallVector.h"
#include "mlir/IR/PatternMatch.h"
#include "quincunx/compiler/dialect/mfuse.h"

namespace qx::compiler {

// A number that is known: mfuse.scalar, or a tensor whose elements all equal one number.
std::optional<double> knownNumber(mlir::Value value);
// Whether a value is this number. Constants in models were rounded to f32 at the worst: 1e-7 relative.
bool isNumber(mlir::Value value, double expected);
bool isClose(double value, double expected);

mlir::RankedTensorType tensorTypeOf(mlir::Value value);

// A product over any nesting: coefficient * factors[0] * factors[1] ...
struct Product {
  double coefficient = 1.0;
  llvm::SmallVector<mlir::Value> factors;
};

class Match {
 public:
  Match(llvm::StringRef pattern, mlir::Operation* root) : pattern_(pattern), root_(root) {}

  // Each takes the operation that defines `value` into the match and gives its operands; null or false, with nothing
  // taken, if that is another operation.
  mlir::Value unary(mlir::Value value, mfuse::UnaryKind kind);
  bool binary(mlir::Value value, mfuse::BinaryKind kind, mlir::Value& lhs, mlir::Value& rhs);
  template <typename Op>
  Op take(mlir::Value value) {
    auto op = value.getDefiningOp<Op>();
    if (op) taken_.push_back(op);
    return op;
  }
  // `value` as kind(x, number) or, where the kind commutes, kind(number, x): gives x and the number.
  mlir::Value withNumber(mlir::Value value, mfuse::BinaryKind kind, double& number);
  // `value` as a product. It is not taken apart below `stops`.
  Product product(mlir::Value value, llvm::ArrayRef<mlir::Value> stops);

  // For alternatives: what was taken after a mark is given back.
  size_t mark() const { return taken_.size(); }
  void rewind(size_t mark) { taken_.truncate(mark); }

  // The shared guards; results of `shared` may be used outside. Emits the reason. With `saves`, inner results may be
  // returned as well, as a training graph saves them for its backward pass: it says whether some are. The match's
  // operations must stay then.
  mlir::LogicalResult guard(llvm::ArrayRef<mlir::Operation*> shared = {}, bool* saves = nullptr);
  // Emits the reason and fails.
  mlir::LogicalResult reject(const llvm::Twine& reason);
  // Emits that the candidate was fused.
  void accept();
  // Where an operation that stands for the match comes from, if its results equal `replaced`.
  mlir::Location location(llvm::ArrayRef<mlir::Value> replaced) const;

 private:
  // All operations, the root last.
  llvm::SmallVector<mlir::Operation*> operations() const;
  mlir::Location remarkLocation() const;

  llvm::StringRef pattern_;
  mlir::Operation* root_;
  llvm::SmallVector<mlir::Operation*> taken_;
};

// Runs patterns over a function in one walk, operands first, and removes what they left without use.
void walkPatterns(mlir::Operation* function, mlir::RewritePatternSet&& patterns);

}  // namespace qx::compiler
