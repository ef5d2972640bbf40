#include "quincunx/compiler/codegen/region_lowering.h"

#include <algorithm>
#include <map>

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "quincunx/compiler/codegen/elementwise_lowering.h"
#include "quincunx/compiler/codegen/place.h"
#include "quincunx/compiler/codegen/region_operations.h"

namespace qx::compiler {
namespace {
namespace mf = qx::mfuse;
using graph::Dim;

constexpr int kMaxAttempts = 12;
// Stores of one output that is written in parts.
constexpr int64_t kMaxParts = 4;

Dim known(int64_t value) { return {.value = value}; }

Status together(const std::string& what) { return unimplemented(what); }

class RegionLowering {
 public:
  RegionLowering(llvm::ArrayRef<mlir::Operation*> ops, llvm::ArrayRef<mlir::Value> outputs)
      : ops_(ops), inside_(ops.begin(), ops.end()), outputs_(outputs.begin(), outputs.end()) {}

  Result<LoweredRegion> lower() {
    if (outputs_.empty()) return together("no result is used outside");
    QX_RETURN_IF_ERROR(chooseAnchor());
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      split_ = {};
      unroll_axis_ = -1;
      Result<LoweredRegion> lowered = attemptLowering();
      if (lowered.ok()) return lowered;
      if (split_.axis >= 0) {
        applySplit();
      } else if (unroll_axis_ >= 0) {
        axes_[unroll_axis_].parts = unroll_parts_;
      } else {
        return lowered;
      }
    }
    return together("the reshapes need too many axes");
  }

 private:
  // An axis of the iteration space, which is a part of one dim of the anchor. With `parts` > 1 it is walked as that
  // many equal stretches side by side.
  struct SpaceAxis {
    Dim size;
    size_t dim = 0;
    int64_t parts = 1;
  };

  // The value whose dims the axes are: the operand of a reduction, or the largest result.
  Status chooseAnchor() {
    for (mlir::Operation* op : ops_) {
      if (!isReduce(op)) continue;
      if (!reduced_.empty() || anchor_ != nullptr) continue;
      anchor_ = op->getOperand(0);
      reduced_.assign(reducedDims(op).begin(), reducedDims(op).end());
    }
    if (anchor_ == nullptr) {
      anchor_ = *std::ranges::max_element(outputs_, {}, [](mlir::Value value) {
        return llvm::cast<mlir::RankedTensorType>(value.getType()).getRank();
      });
    }
    const auto shape = shapeOf(anchor_);
    if (!shape) return together("a size is not affine in one symbol");
    for (size_t dim = 0; dim < shape->size(); ++dim) {
      const bool is_reduced = std::ranges::count(reduced_, static_cast<int64_t>(dim)) != 0;
      if (!((*shape)[dim] == known(1)) || is_reduced) axes_.push_back({(*shape)[dim], dim, 1});
    }
    anchor_rank_ = shape->size();
    return ok_status();
  }

  void applySplit() {
    const SpaceAxis whole = axes_[split_.axis];
    axes_.erase(axes_.begin() + split_.axis);
    for (size_t i = split_.sizes.size(); i-- > 0;) {
      axes_.insert(axes_.begin() + split_.axis, SpaceAxis{split_.sizes[i], whole.dim, 1});
    }
    // The stretches are those of the outermost piece.
    SpaceAxis& outermost = axes_[split_.axis];
    outermost.parts = whole.parts;
    outermost.size = *multiply(outermost.size, known(whole.parts));
  }

  Result<LoweredRegion> attemptLowering() {
    program_ = {};
    inputs_.clear();
    values_.clear();
    places_.clear();
    if (axes_.size() > LoopProgram::kMaxAxes) return together("the iteration space has too many axes");
    Place anchor(anchor_rank_);
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      Axis walked{axes_[axis].size, std::ranges::count(reduced_, static_cast<int64_t>(axes_[axis].dim)) != 0};
      if (axes_[axis].parts > 1) walked.size = *divide(walked.size, known(axes_[axis].parts));
      program_.axes.push_back(walked);
      anchor[axes_[axis].dim].axes.push_back(static_cast<int32_t>(axis));
    }
    reduced_place_.clear();
    for (const int64_t dim : reduced_) reduced_place_.push_back(anchor[dim]);
    places_[anchor_] = anchor;
    propagate();
    for (const mlir::Value output : outputs_) QX_RETURN_IF_ERROR(storeOutput(output));
    LoweredRegion region;
    for (const mlir::Value input : inputs_) region.inputs.push_back(input);
    region.outputs.assign(outputs_.begin(), outputs_.end());
    for (View& view : program_.views) {
      if (view.tensor < 0) view.tensor = static_cast<int32_t>(inputs_.size()) - view.tensor - 1;
    }
    region.program = std::move(program_);
    if (region.program.views.size() > LoopProgram::kMaxViews) return together("the region has too many tensors");
    const Status status = verify(region.program);
    return status.ok() ? Result<LoweredRegion>(std::move(region)) : together(status.message());
  }

  void propagate() {
    bool changed = true;
    while (changed) {
      changed = false;
      for (mlir::Operation* op : ops_) changed |= propagateForward(op);
      for (mlir::Operation* op : llvm::reverse(ops_)) changed |= propagateBackward(op);
    }
  }

  bool propagateForward(mlir::Operation* op) {
    if (op->getNumResults() != 1 || places_.count(op->getResult(0)) != 0) return false;
    const mlir::Value result = op->getResult(0);
    for (const mlir::Value operand : op->getOperands()) {
      const auto found = places_.find(operand);
      if (found == places_.end()) continue;
      const auto place = resultPlace(op, operand, found->second);
      if (!place) continue;
      places_[result] = *place;
      return true;
    }
    return false;
  }

  bool propagateBackward(mlir::Operation* op) {
    if (op->getNumResults() != 1) return false;
    const auto found = places_.find(op->getResult(0));
    if (found == places_.end()) return false;
    bool changed = false;
    const Place place = found->second;
    for (const mlir::Value operand : op->getOperands()) {
      if (!llvm::isa<mlir::RankedTensorType>(operand.getType()) || places_.count(operand) != 0) continue;
      if (llvm::isa<mf::SliceOp, mf::CatOp>(op)) continue;
      const auto inner = operandPlace(op, operand, place);
      if (!inner.ok()) continue;
      places_[operand] = *inner;
      changed = true;
    }
    return changed;
  }

  // Where the result lies if the operand lies at `place`; null if that does not say it.
  std::optional<Place> resultPlace(mlir::Operation* op, mlir::Value operand, const Place& place) {
    const auto from = shapeOf(operand);
    const auto to = shapeOf(op->getResult(0));
    if (!from || !to) return std::nullopt;
    if (isElementwise(op) || llvm::isa<mf::BroadcastOp>(op)) {
      Place result(to->size());
      for (size_t dim = 0; dim < to->size(); ++dim) {
        if ((*to)[dim] == known(1)) continue;
        const auto source = static_cast<int64_t>(dim + from->size()) - static_cast<int64_t>(to->size());
        if (source < 0 || !((*from)[source] == (*to)[dim])) return std::nullopt;
        result[dim] = place[source];
      }
      return result;
    }
    if (auto permute = llvm::dyn_cast<mf::PermuteOp>(op)) {
      Place result;
      for (const int64_t dim : permute.getPermutation()) result.push_back(place[dim]);
      return result;
    }
    AxisSplit split;
    if (llvm::isa<mf::ReshapeOp>(op)) {
      const auto result = reshapePlace(place, *from, *to, program_.axes, split);
      if (!result && split.axis >= 0 && split_.axis < 0) wish_ = split;
      return result;
    }
    if (!isReduce(op)) return std::nullopt;
    Place result;
    for (size_t dim = 0; dim < place.size(); ++dim) {
      const bool is_reduced = llvm::is_contained(reducedDims(op), static_cast<int64_t>(dim));
      if (!is_reduced) result.push_back(place[dim]);
      if (is_reduced && keepsDims(op)) result.push_back({});
    }
    return result;
  }

  // Where the operand is read if the result is wanted at `place`.
  Result<Place> operandPlace(mlir::Operation* op, mlir::Value operand, const Place& place) {
    const auto shape = shapeOf(operand);
    const auto result_shape = shapeOf(op->getResult(0));
    if (!shape || !result_shape) return together("a size is not affine in one symbol");
    if (isElementwise(op) || llvm::isa<mf::BroadcastOp>(op)) {
      Place result(shape->size());
      const size_t skipped = place.size() - shape->size();
      for (size_t dim = 0; dim < shape->size(); ++dim) {
        const bool repeated = (*shape)[dim] == known(1);
        if (!repeated && !((*shape)[dim] == (*result_shape)[dim + skipped])) {
          return together("a size is broadcast or not depending on a symbol");
        }
        if (!repeated) result[dim] = place[dim + skipped];
      }
      return result;
    }
    if (auto permute = llvm::dyn_cast<mf::PermuteOp>(op)) {
      Place result(place.size());
      for (size_t dim = 0; dim < place.size(); ++dim) result[permute.getPermutation()[dim]] = place[dim];
      return result;
    }
    if (auto slice = llvm::dyn_cast<mf::SliceOp>(op)) {
      Place result = place;
      ViewDim& dim = result[slice.getDim()];
      const auto step = static_cast<int64_t>(slice.getStep());
      if (!dim.start.is_known() && step != 1) return together("a slice with a step starts at a size that is not known");
      if (step != 1) dim.start.value *= step;
      dim.start.value += static_cast<int64_t>(slice.getStart());
      dim.step *= step;
      return result;
    }
    if (llvm::isa<mf::ReshapeOp>(op)) {
      AxisSplit split;
      const auto result = reshapePlace(place, *result_shape, *shape, program_.axes, split);
      if (result) return *result;
      if (split.axis >= 0) wish_ = split;
      return together("a reshape does not keep the dims apart");
    }
    if (isReduce(op)) return reductionPlace(op, place, *shape);
    return together(op->getName().getStringRef().str() + " cannot be inside a region");
  }

  Result<Place> reductionPlace(mlir::Operation* op, const Place& place, const Shape& shape) {
    const auto dims = reducedDims(op);
    if (dims.size() != reduced_.size()) return together("reductions over different dims");
    const auto anchor_shape = shapeOf(anchor_);
    for (const ViewDim& dim : place) {
      for (const int32_t axis : dim.axes) {
        if (program_.axes[axis].reduced) return together("a reduction's result is reduced again");
      }
    }
    Place result;
    size_t next_reduced = 0;
    size_t next_kept = 0;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      if (!llvm::is_contained(dims, static_cast<int64_t>(dim))) {
        result.push_back(place[next_kept++]);
        continue;
      }
      if (keepsDims(op)) ++next_kept;
      if (!(shape[dim] == (*anchor_shape)[reduced_[next_reduced]])) return together("reductions over different sizes");
      result.push_back(reduced_place_[next_reduced++]);
    }
    return result;
  }

  Status storeOutput(mlir::Value output) {
    const auto found = places_.find(output);
    if (found == places_.end()) {
      split_ = wish_;
      return together("a result has no place in the iteration space of the others");
    }
    const auto shape = shapeOf(output);
    const DType dtype = elementDType(output.getType());
    program_.outputs.push_back({dtype, *shape});
    std::vector<Place> parts = {found->second};
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      if (axes_[axis].parts == 1) continue;
      std::vector<Place> more;
      for (const Place& place : parts) QX_RETURN_IF_ERROR(cutPlace(place, static_cast<int32_t>(axis), more));
      parts = std::move(more);
    }
    for (const Place& place : parts) {
      QX_ASSIGN_OR_RETURN(int32_t value, emit(output, place));
      if (program_.code[value].dtype != dtype) value = program_.add(Opcode::kCast, dtype, value);
      program_.add(Opcode::kStore, dtype, value);
      program_.code.back().index = static_cast<int64_t>(program_.views.size());
      // Numbered after the inputs, whose count is not known yet.
      program_.views.push_back({-static_cast<int32_t>(program_.outputs.size()), place});
    }
    return ok_status();
  }

  // The place with `axis` cut into its parts, one entry a part.
  Status cutPlace(const Place& place, int32_t axis, std::vector<Place>& parts) {
    for (int64_t part = 0; part < axes_[axis].parts; ++part) {
      Place cut = place;
      bool is_cut = false;
      for (ViewDim& dim : cut) {
        if (std::ranges::count(dim.axes, axis) == 0) continue;
        const Dim size = program_.axes[axis].size;
        const bool whole = size == known(1) && dim.axes.back() == axis && dim.step == 1;
        const std::optional<Dim> stretch = dim.axes.front() == axis ? sizeOf(dim) : std::nullopt;
        if (stretch && stretch->is_known() && dim.start.is_known()) {
          dim.start.value += part * stretch->value * dim.step;
        } else if (whole && dim.start.is_known()) {
          // The parts are neighbours: the outer axes step over all of them.
          dim.start.value += part;
          dim.step = axes_[axis].parts;
          dim.axes.pop_back();
        } else {
          return together("a concatenated dim is merged with others");
        }
        is_cut = true;
      }
      if (!is_cut) {
        parts.push_back(place);
        return ok_status();
      }
      parts.push_back(std::move(cut));
    }
    return ok_status();
  }

  // Steps that the axes of a dim take together.
  std::optional<Dim> sizeOf(const ViewDim& dim) const {
    std::optional<Dim> product = known(1);
    for (const int32_t axis : dim.axes) product = product ? multiply(*product, program_.axes[axis].size) : product;
    return product;
  }

  Result<int32_t> emit(mlir::Value value, const Place& place) {
    auto& known_places = values_[value];
    for (const auto& [other, instruction] : known_places) {
      if (other == place) return instruction;
    }
    mlir::Operation* const op = value.getDefiningOp();
    const bool is_inside = op != nullptr && inside_.contains(op);
    auto result = op != nullptr && isNumber(op) ? emitNumber(op, elementDType(value.getType()))
                  : is_inside                   ? emitOperation(op, place)
                                                : emitLoad(value, place);
    if (result.ok()) values_[value].push_back({place, *result});
    return result;
  }

  Result<int32_t> emitLoad(mlir::Value value, const Place& place) {
    const auto shape = shapeOf(value);
    if (!shape) return together("a size is not affine in one symbol");
    const DType dtype = elementDType(value.getType());
    auto found = std::ranges::find(inputs_, value);
    if (found == inputs_.end()) {
      program_.inputs.push_back({dtype, *shape});
      inputs_.push_back(value);
      found = inputs_.end() - 1;
    }
    const int32_t loaded = program_.add(Opcode::kLoad, dtype);
    program_.code.back().index = static_cast<int64_t>(program_.views.size());
    program_.views.push_back({static_cast<int32_t>(found - inputs_.begin()), place});
    return computeType(dtype) == dtype ? loaded : program_.add(Opcode::kCast, computeType(dtype), loaded);
  }

  // A number as a constant of `dtype`, or as one that sizes give.
  Result<int32_t> emitNumber(mlir::Operation* op, DType dtype) {
    const DType carried = computeType(dtype);
    if (auto full = llvm::dyn_cast<mf::FullOp>(op)) {
      QX_ASSIGN_OR_RETURN(const int32_t value, emitNumber(full.getValue().getDefiningOp(), dtype));
      return carried == dtype ? value : rounded(value, dtype);
    }
    if (auto size = llvm::dyn_cast<mf::SizeOp>(op)) {
      const auto dim = dimOf(size.getMap().getResult(0));
      if (!dim) return together("a size is not affine in one symbol");
      return sizeAs({*dim}, carried);
    }
    const auto number = uniformNumber(op->getResult(0));
    if (!number) return together("a constant's elements differ");
    return program_.constant(carried, carried == DType::kFloat32 ? static_cast<float>(*number) : *number);
  }

  int32_t rounded(int32_t value, DType half) {
    return program_.add(Opcode::kCast, DType::kFloat32, program_.add(Opcode::kCast, half, value));
  }

  int32_t sizeAs(std::vector<Dim> factors, DType dtype) {
    const auto found = std::ranges::find(program_.scalars, factors);
    const int32_t size = program_.add(Opcode::kScalar, DType::kInt64);
    program_.code.back().index = found - program_.scalars.begin();
    if (found == program_.scalars.end()) program_.scalars.push_back(std::move(factors));
    return dtype == DType::kInt64 ? size : program_.add(Opcode::kCast, dtype, size);
  }

  Result<int32_t> emitOperation(mlir::Operation* op, const Place& place) {
    if (auto cat = llvm::dyn_cast<mf::CatOp>(op)) return emitCat(cat, place);
    if (isReduce(op)) return emitReduction(op, place);
    if (!isElementwise(op)) {
      QX_ASSIGN_OR_RETURN(const Place inner, operandPlaceOrSplit(op, op->getOperand(0), place));
      return emit(op->getOperand(0), inner);
    }
    // Scalars take the type of the tensors beside them.
    DType scalar_type = elementDType(op->getResult(0).getType());
    for (const mlir::Value operand : op->getOperands()) {
      const bool is_condition = llvm::isa<mf::SelectOp>(op) && operand == op->getOperand(0);
      if (llvm::isa<mlir::RankedTensorType>(operand.getType()) && !is_condition) {
        scalar_type = elementDType(operand.getType());
      }
    }
    llvm::SmallVector<int32_t> operands;
    for (const mlir::Value operand : op->getOperands()) {
      if (!llvm::isa<mlir::RankedTensorType>(operand.getType())) {
        QX_ASSIGN_OR_RETURN(const int32_t value, emitNumber(operand.getDefiningOp(), computeType(scalar_type)));
        operands.push_back(value);
        continue;
      }
      QX_ASSIGN_OR_RETURN(const Place inner, operandPlaceOrSplit(op, operand, place));
      QX_ASSIGN_OR_RETURN(const int32_t value, emit(operand, inner));
      operands.push_back(value);
    }
    return lowerElementwise(program_, op, operands);
  }

  Result<Place> operandPlaceOrSplit(mlir::Operation* op, mlir::Value operand, const Place& place) {
    wish_ = {};
    auto inner = operandPlace(op, operand, place);
    if (!inner.ok()) split_ = wish_;
    return inner;
  }

  Result<int32_t> emitCat(mf::CatOp cat, const Place& place) {
    const auto dim = static_cast<size_t>(cat.getDim());
    const ViewDim& wanted = place[dim];
    const std::optional<Dim> steps = sizeOf(wanted);
    if (!wanted.start.is_known() || !steps || !steps->is_known()) return together("a concatenated size is not known");
    const int64_t last = wanted.start.value + (steps->value - 1) * wanted.step;
    int64_t begin = 0;
    for (const mlir::Value input : cat.getInputs()) {
      const Dim size = (*shapeOf(input))[dim];
      if (!size.is_known()) return together("a concatenated size is not known");
      if (wanted.start.value >= begin && last < begin + size.value) {
        Place inner = place;
        inner[dim].start.value -= begin;
        return emit(input, inner);
      }
      if (wanted.start.value < begin + size.value) break;
      begin += size.value;
    }
    requestParts(cat, wanted);
    return together("concatenated pieces of different sizes");
  }

  // Asks for an iteration space in which each piece of the concatenation is walked on its own.
  void requestParts(mf::CatOp cat, const ViewDim& wanted) {
    const auto dim = static_cast<size_t>(cat.getDim());
    const auto count = static_cast<int64_t>(cat.getInputs().size());
    const Dim piece = (*shapeOf(cat.getInputs()[0]))[dim];
    for (const mlir::Value input : cat.getInputs()) {
      if (!((*shapeOf(input))[dim] == piece)) return;
    }
    const bool fits = wanted.axes.size() == 1 && wanted.start == known(0) && wanted.step == 1 && count <= kMaxParts;
    if (!fits || axes_[wanted.axes[0]].parts != 1 || program_.axes[wanted.axes[0]].reduced) return;
    unroll_axis_ = wanted.axes[0];
    unroll_parts_ = count;
  }

  Result<int32_t> emitReduction(mlir::Operation* op, const Place& place) {
    const mlir::Value input = op->getOperand(0);
    QX_ASSIGN_OR_RETURN(const Place inner, operandPlaceOrSplit(op, input, place));
    QX_ASSIGN_OR_RETURN(const int32_t x, emit(input, inner));
    const DType dtype = program_.code[x].dtype;
    std::vector<Dim> count;
    for (const int64_t dim : reducedDims(op)) count.push_back((*shapeOf(input))[dim]);
    auto variance = llvm::dyn_cast<mf::VarianceOp>(op);
    const auto mean = [&] {
      const int32_t sum = program_.add(Opcode::kReduceSum, dtype, x);
      return program_.add(Opcode::kDiv, dtype, sum, sizeAs(count, dtype));
    };
    if (!variance) {
      switch (llvm::cast<mf::ReduceOp>(op).getKind()) {
        case mf::ReduceKind::sum: return program_.add(Opcode::kReduceSum, dtype, x);
        case mf::ReduceKind::mean: return mean();
        case mf::ReduceKind::prod: return program_.add(Opcode::kReduceProd, dtype, x);
        case mf::ReduceKind::max: return program_.add(Opcode::kReduceMax, dtype, x);
        case mf::ReduceKind::min: return program_.add(Opcode::kReduceMin, dtype, x);
        default: return emitBoolReduction(llvm::cast<mf::ReduceOp>(op).getKind(), x);
      }
    }
    const int32_t centred = program_.add(Opcode::kSub, dtype, x, mean());
    const int32_t squares =
        program_.add(Opcode::kReduceSum, dtype, program_.add(Opcode::kMul, dtype, centred, centred));
    const int32_t correction = program_.constant(dtype, variance.getCorrection().convertToDouble());
    const int32_t left = program_.add(Opcode::kSub, dtype, sizeAs(count, dtype), correction);
    const int32_t divisor = program_.add(Opcode::kMax, dtype, left, program_.constant(dtype, 0));
    return program_.add(Opcode::kDiv, dtype, squares, divisor);
  }

  // any and all as a count, which is right for no elements too.
  int32_t emitBoolReduction(mf::ReduceKind kind, int32_t x) {
    if (kind == mf::ReduceKind::all) x = program_.add(Opcode::kNot, DType::kBool, x);
    const int32_t wide = program_.add(Opcode::kCast, DType::kInt32, x);
    const int32_t count = program_.add(Opcode::kReduceSum, DType::kInt32, wide);
    const Opcode compare = kind == mf::ReduceKind::all ? Opcode::kEq : Opcode::kNe;
    return program_.add(compare, DType::kBool, count, program_.constant(DType::kInt32, 0));
  }

  llvm::ArrayRef<mlir::Operation*> ops_;
  llvm::DenseSet<mlir::Operation*> inside_;
  std::vector<mlir::Value> outputs_;
  mlir::Value anchor_;
  size_t anchor_rank_ = 0;
  std::vector<int64_t> reduced_;  // dims of the anchor
  std::vector<SpaceAxis> axes_;
  // What an attempt found to be missing.
  AxisSplit split_;
  AxisSplit wish_;
  int32_t unroll_axis_ = -1;
  int64_t unroll_parts_ = 1;

  LoopProgram program_;
  Place reduced_place_;
  std::vector<mlir::Value> inputs_;
  llvm::DenseMap<mlir::Value, std::vector<std::pair<Place, int32_t>>> values_;
  llvm::DenseMap<mlir::Value, Place> places_;
};

}  // namespace

llvm::SmallVector<mlir::Value> usedOutside(llvm::ArrayRef<mlir::Operation*> ops) {
  const llvm::DenseSet<mlir::Operation*> inside(ops.begin(), ops.end());
  llvm::SmallVector<mlir::Value> outputs;
  for (mlir::Operation* op : ops) {
    for (const mlir::Value result : op->getResults()) {
      if (llvm::any_of(result.getUsers(), [&](mlir::Operation* user) { return !inside.contains(user); })) {
        outputs.push_back(result);
      }
    }
  }
  return outputs;
}

Result<LoweredRegion> lowerRegion(llvm::ArrayRef<mlir::Operation*> ops) {
  return RegionLowering(ops, usedOutside(ops)).lower();
}

Result<LoweredRegion> lowerRegion(llvm::ArrayRef<mlir::Operation*> ops, llvm::ArrayRef<mlir::Value> outputs) {
  return RegionLowering(ops, outputs).lower();
}

}  // namespace qx::compiler
