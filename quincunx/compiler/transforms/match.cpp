#include "quincunx/compiler/transforms/match.h"

#include <cmath>

#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Rewrite/FrozenRewritePatternSet.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"
#include "quincunx/compiler/dialect/labels.h"
#include "quincunx/compiler/dialect/origin.h"

namespace qx::compiler {
namespace {

using mfuse::BinaryKind;
using mfuse::UnaryKind;

constexpr unsigned kMaxProductOperations = 12;

std::optional<double> numberOf(mlir::Attribute attribute) {
  if (auto number = llvm::dyn_cast<mlir::FloatAttr>(attribute)) return number.getValueAsDouble();
  auto integer = llvm::dyn_cast<mlir::IntegerAttr>(attribute);
  if (integer && !integer.getType().isInteger(1)) return static_cast<double>(integer.getValue().getSExtValue());
  return std::nullopt;
}

bool commutes(BinaryKind kind) { return kind == BinaryKind::add || kind == BinaryKind::mul; }

}  // namespace

mlir::RankedTensorType tensorTypeOf(mlir::Value value) {
  return llvm::dyn_cast<mlir::RankedTensorType>(value.getType());
}

std::optional<double> knownNumber(mlir::Value value) {
  mlir::Operation* op = value.getDefiningOp();
  if (!op) return std::nullopt;
  if (auto scalar = llvm::dyn_cast<mfuse::ScalarOp>(op)) return numberOf(scalar.getValue());
  if (auto constant = llvm::dyn_cast<mfuse::ConstantOp>(op)) {
    auto elements = llvm::dyn_cast<mlir::DenseElementsAttr>(constant.getValue());
    if (!elements || !elements.isSplat()) return std::nullopt;
    return numberOf(elements.getSplatValue<mlir::Attribute>());
  }
  if (auto full = llvm::dyn_cast<mfuse::FullOp>(op)) return knownNumber(full.getValue());
  if (llvm::isa<mfuse::BroadcastOp, mfuse::ReshapeOp>(op)) return knownNumber(op->getOperand(0));
  return std::nullopt;
}

bool isClose(double value, double expected) { return std::abs(value - expected) <= 1e-7 * std::abs(expected); }

bool isNumber(mlir::Value value, double expected) {
  auto number = knownNumber(value);
  return number && isClose(*number, expected);
}

mlir::Value Match::unary(mlir::Value value, UnaryKind kind) {
  auto op = value.getDefiningOp<mfuse::UnaryOp>();
  if (!op || op.getKind() != kind) return {};
  taken_.push_back(op);
  return op.getInput();
}

bool Match::binary(mlir::Value value, BinaryKind kind, mlir::Value& lhs, mlir::Value& rhs) {
  auto op = value.getDefiningOp<mfuse::BinaryOp>();
  if (!op || op.getKind() != kind) return false;
  taken_.push_back(op);
  lhs = op.getLhs();
  rhs = op.getRhs();
  return true;
}

mlir::Value Match::withNumber(mlir::Value value, BinaryKind kind, double& number) {
  size_t start = mark();
  mlir::Value lhs, rhs;
  if (!binary(value, kind, lhs, rhs)) return {};
  if (commutes(kind) && knownNumber(lhs)) std::swap(lhs, rhs);
  auto known = knownNumber(rhs);
  if (!known || !tensorTypeOf(lhs)) {
    rewind(start);
    return {};
  }
  number = *known;
  return lhs;
}

Product Match::product(mlir::Value value, llvm::ArrayRef<mlir::Value> stops) {
  Product result;
  if (llvm::is_contained(stops, value)) {
    result.factors.push_back(value);
    return result;
  }
  if (auto number = knownNumber(value)) {
    result.coefficient = *number;
    return result;
  }
  auto append = [&](mlir::Value factor) {
    Product part = product(factor, stops);
    result.coefficient *= part.coefficient;
    llvm::append_range(result.factors, part.factors);
  };
  mlir::Value lhs, rhs;
  double number = 0;
  if (taken_.size() > kMaxProductOperations) {
    result.factors.push_back(value);
  } else if (binary(value, BinaryKind::mul, lhs, rhs)) {
    append(lhs);
    append(rhs);
  } else if ((lhs = withNumber(value, BinaryKind::div, number))) {
    append(lhs);
    result.coefficient /= number;
  } else if ((lhs = unary(value, UnaryKind::neg))) {
    append(lhs);
    result.coefficient = -result.coefficient;
  } else if ((lhs = withNumber(value, BinaryKind::pow, number)) && (number == 2 || number == 3)) {
    for (int count = 0; count < static_cast<int>(number); ++count) append(lhs);
  } else {
    if (lhs) taken_.pop_back();  // another power
    result.factors.push_back(value);
  }
  return result;
}

llvm::SmallVector<mlir::Operation*> Match::operations() const {
  llvm::SmallVector<mlir::Operation*> all;
  for (mlir::Operation* op : taken_) {
    if (op != root_ && !llvm::is_contained(all, op)) all.push_back(op);
  }
  all.push_back(root_);
  return all;
}

// Returned, perhaps as another dtype or shape, and nothing else.
static bool isOnlyReturned(mlir::Operation* user) {
  if (user->hasTrait<mlir::OpTrait::IsTerminator>()) return true;
  return llvm::isa<mfuse::CastOp, mfuse::ReshapeOp>(user) && llvm::all_of(user->getUsers(), isOnlyReturned);
}

mlir::LogicalResult Match::guard(llvm::ArrayRef<mlir::Operation*> shared, bool* saves) {
  llvm::SmallVector<mlir::Operation*> all = operations();
  mlir::Operation* first = root_;
  for (mlir::Operation* op : all) {
    if (op->getBlock() != root_->getBlock()) return reject("operations of several blocks");
    if (mfuse::labelOf(op) != mfuse::labelOf(root_)) return reject("operations of several labels");
    if (op->isBeforeInBlock(first)) first = op;
    if (op == root_ || llvm::is_contained(shared, op)) continue;
    for (mlir::Operation* user : op->getUsers()) {
      if (llvm::is_contained(all, user)) continue;
      if (saves != nullptr && isOnlyReturned(user)) {
        *saves = true;
        continue;
      }
      return reject(llvm::Twine("an inner result of ") + op->getName().getStringRef() + " has another user, " +
                    user->getName().getStringRef());
    }
  }
  for (mlir::Operation* op = first; op != root_; op = op->getNextNode()) {
    auto opaque = llvm::dyn_cast<mfuse::OpaqueOp>(op);
    if (opaque && opaque.getWrites()) return reject("memory is written to in between by " + opaque.getName());
  }
  return mlir::success();
}

mlir::Location Match::remarkLocation() const {
  llvm::SmallVector<mlir::Operation*> all = operations();
  return mfuse::mergedOrigin(all, {});
}

mlir::LogicalResult Match::reject(const llvm::Twine& reason) {
  mlir::emitRemark(remarkLocation()) << pattern_ << ": " << reason;
  return mlir::failure();
}

void Match::accept() { mlir::emitRemark(remarkLocation()) << pattern_ << ": fused"; }

mlir::Location Match::location(llvm::ArrayRef<mlir::Value> replaced) const {
  return mfuse::mergedOrigin(operations(), replaced);
}

void walkPatterns(mlir::Operation* function, mlir::RewritePatternSet&& patterns) {
  mlir::walkAndApplyPatterns(function, mlir::FrozenRewritePatternSet(std::move(patterns)));
  // Users before operands; what is left of a match would count as another user in the next pass.
  function->walk<mlir::WalkOrder::PostOrder, mlir::ReverseIterator>([](mlir::Operation* op) {
    if (mlir::isOpTriviallyDead(op)) op->erase();
  });
}

}  // namespace qx::compiler
