#include "quincunx/compiler/codegen/region_parts.h"

#include <algorithm>
#include <map>

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include "quincunx/compiler/codegen/region_operations.h"
#include "quincunx/compiler/dialect/mfuse.h"

namespace qx::compiler {
namespace mf = qx::mfuse;
namespace {

// More than this computed twice costs more than the memory traffic that one region saves.
constexpr size_t kMaxSharedOps = 12;

// The reduced dims, counted with the shape that they are of: the sum over dim 0 of a vector is another set than that of
// a matrix.
using ReducedSet = std::vector<int64_t>;

ReducedSet reducedSet(mlir::Operation* op) {
  ReducedSet set(reducedDims(op).begin(), reducedDims(op).end());
  set.push_back(-llvm::cast<mlir::RankedTensorType>(op->getOperand(0).getType()).getRank());
  return set;
}

// Arithmetic that costs about as much as reading an operand.
bool isCheap(mlir::Operation* op) {
  if (auto unary = llvm::dyn_cast<mf::UnaryOp>(op)) {
    return unary.getKind() == mf::UnaryKind::neg || unary.getKind() == mf::UnaryKind::abs ||
           unary.getKind() == mf::UnaryKind::relu;
  }
  if (auto binary = llvm::dyn_cast<mf::BinaryOp>(op)) {
    return binary.getKind() == mf::BinaryKind::add || binary.getKind() == mf::BinaryKind::sub ||
           binary.getKind() == mf::BinaryKind::mul;
  }
  return !isReduce(op) && !llvm::isa<mf::CatOp>(op);
}

class PartsLowering {
 public:
  explicit PartsLowering(llvm::ArrayRef<mlir::Operation*> ops) : ops_(ops), inside_(ops.begin(), ops.end()) {}

  Result<std::vector<LoweredRegion>> lower() {
    QX_RETURN_IF_ERROR(assignSets());
    QX_RETURN_IF_ERROR(groupOutputs());
    std::vector<llvm::SetVector<mlir::Operation*>> slices;
    for (const auto& [set, outputs] : outputs_) slices.push_back(sliceOf(outputs));
    size_t shared = 0;
    for (mlir::Operation* op : slices[0]) {
      if (!slices[1].contains(op)) continue;
      if (!isCheap(op) || ++shared > kMaxSharedOps) return unimplemented("reductions over different dims share much");
    }
    std::vector<LoweredRegion> parts;
    for (const auto& [set, outputs] : outputs_) {
      llvm::SmallVector<mlir::Operation*> ordered;
      for (mlir::Operation* op : ops_) {
        if (slices[parts.size()].contains(op)) ordered.push_back(op);
      }
      QX_ASSIGN_OR_RETURN(LoweredRegion part, lowerRegion(ordered, outputs));
      parts.push_back(std::move(part));
    }
    return parts;
  }

 private:
  // The set of dims that each operation's reductions, or those before it, run over; none for those without.
  Status assignSets() {
    for (mlir::Operation* op : ops_) {
      ReducedSet set = isReduce(op) ? reducedSet(op) : ReducedSet();
      for (const mlir::Value operand : op->getOperands()) {
        mlir::Operation* const source = operand.getDefiningOp();
        if (source == nullptr || !inside_.contains(source) || sets_[source].empty()) continue;
        if (!set.empty() && set != sets_[source]) return unimplemented("a result of reductions over different dims");
        set = sets_[source];
      }
      sets_[op] = std::move(set);
    }
    return ok_status();
  }

  // Results without a reduction are computed with the first set.
  Status groupOutputs() {
    for (mlir::Operation* op : ops_) {
      if (!sets_[op].empty()) outputs_[sets_[op]];
    }
    if (outputs_.size() != kMaxParts) return unimplemented("reductions over more than two sets of dims");
    for (const mlir::Value output : usedOutside(ops_)) {
      const ReducedSet& set = sets_[output.getDefiningOp()];
      (set.empty() ? outputs_.begin()->second : outputs_[set]).push_back(output);
    }
    const bool all = std::ranges::none_of(outputs_, [](const auto& group) { return group.second.empty(); });
    return all ? ok_status() : unimplemented("a reduction that no result needs");
  }

  llvm::SetVector<mlir::Operation*> sliceOf(llvm::ArrayRef<mlir::Value> outputs) const {
    llvm::SetVector<mlir::Operation*> slice;
    for (const mlir::Value output : outputs) slice.insert(output.getDefiningOp());
    for (size_t next = 0; next < slice.size(); ++next) {
      for (const mlir::Value operand : slice[next]->getOperands()) {
        mlir::Operation* const source = operand.getDefiningOp();
        if (source != nullptr && inside_.contains(source)) slice.insert(source);
      }
    }
    return slice;
  }

  llvm::ArrayRef<mlir::Operation*> ops_;
  llvm::SetVector<mlir::Operation*> inside_;
  llvm::DenseMap<mlir::Operation*, ReducedSet> sets_;
  std::map<ReducedSet, llvm::SmallVector<mlir::Value>> outputs_;
};

}  // namespace

Result<std::vector<LoweredRegion>> lowerParts(llvm::ArrayRef<mlir::Operation*> ops) {
  Result<LoweredRegion> whole = lowerRegion(ops);
  if (whole.ok()) {
    std::vector<LoweredRegion> parts;
    parts.push_back(std::move(whole).value());
    return parts;
  }
  Result<std::vector<LoweredRegion>> parts = PartsLowering(ops).lower();
  return parts.ok() ? std::move(parts) : Result<std::vector<LoweredRegion>>(whole.status());
}

}  // namespace qx::compiler
