// Tile programs: regions whose reductions run over one dim, as data that the runtime executes without LLVM.
#include <algorithm>
#include <array>

#include "quincunx/compiler/clustering/target.h"
#include "quincunx/compiler/codegen/region_lowering.h"
#include "quincunx/compiler/codegen/region_operations.h"
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/tile/interpreter.h"
#include "quincunx/tile/program.h"

namespace qx::compiler {
namespace {

// An interpreted instruction walks a tile in the cache: long programs spill out of it.
constexpr size_t kMaxRegionOps = 64;

struct TileOpcode {
  Opcode loop;
  tile::Opcode tile;
};
constexpr TileOpcode kSame[] = {
    {Opcode::kNeg, tile::Opcode::kNeg},
    {Opcode::kAbs, tile::Opcode::kAbs},
    {Opcode::kExp, tile::Opcode::kExp},
    {Opcode::kLog, tile::Opcode::kLog},
    {Opcode::kSqrt, tile::Opcode::kSqrt},
    {Opcode::kRsqrt, tile::Opcode::kRsqrt},
    {Opcode::kReciprocal, tile::Opcode::kReciprocal},
    {Opcode::kTanh, tile::Opcode::kTanh},
    {Opcode::kErf, tile::Opcode::kErf},
    {Opcode::kSigmoid, tile::Opcode::kSigmoid},
    {Opcode::kSin, tile::Opcode::kSin},
    {Opcode::kCos, tile::Opcode::kCos},
    {Opcode::kFloor, tile::Opcode::kFloor},
    {Opcode::kCeil, tile::Opcode::kCeil},
    {Opcode::kRound, tile::Opcode::kRound},
    {Opcode::kIsNan, tile::Opcode::kIsNan},
    {Opcode::kNot, tile::Opcode::kNot},
    {Opcode::kAdd, tile::Opcode::kAdd},
    {Opcode::kSub, tile::Opcode::kSub},
    {Opcode::kMul, tile::Opcode::kMul},
    {Opcode::kDiv, tile::Opcode::kDiv},
    {Opcode::kPow, tile::Opcode::kPow},
    {Opcode::kMax, tile::Opcode::kMax},
    {Opcode::kMin, tile::Opcode::kMin},
    {Opcode::kAnd, tile::Opcode::kAnd},
    {Opcode::kOr, tile::Opcode::kOr},
    {Opcode::kEq, tile::Opcode::kEq},
    {Opcode::kNe, tile::Opcode::kNe},
    {Opcode::kLt, tile::Opcode::kLt},
    {Opcode::kLe, tile::Opcode::kLe},
    {Opcode::kGt, tile::Opcode::kGt},
    {Opcode::kGe, tile::Opcode::kGe},
    {Opcode::kSelect, tile::Opcode::kSelect},
    {Opcode::kCast, tile::Opcode::kCast},
    {Opcode::kReduceSum, tile::Opcode::kReduceSum},
    {Opcode::kReduceMax, tile::Opcode::kReduceMax},
    {Opcode::kReduceMin, tile::Opcode::kReduceMin},
};

Status lacks(const std::string& what) { return unimplemented("tile programs have no " + what); }

// The axes of a tile program: those of the loops that are kept, one for each dim of size 1 that the outputs have, and
// the reduced one, which has to be the last.
struct TileAxes {
  std::vector<int32_t> numbers;  // of the loop program's axes
  int32_t first_single = 0;
  int32_t count = 0;
};

int64_t singleDims(const View& view) {
  return std::ranges::count_if(view.dims, [](const ViewDim& dim) { return dim.axes.empty(); });
}

Result<TileAxes> numberAxes(const LoopProgram& program) {
  const auto num_reduced = std::ranges::count(program.axes, true, &Axis::reduced);
  if (num_reduced > 1) return lacks("reductions over several dims");
  int64_t singles = -1;
  for (const View& view : program.views) {
    if (view.tensor < static_cast<int32_t>(program.inputs.size())) continue;
    if (singles >= 0 && singles != singleDims(view)) return lacks("outputs with and without dims of size 1");
    singles = singleDims(view);
  }
  TileAxes axes;
  axes.first_single = static_cast<int32_t>(program.axes.size()) - static_cast<int32_t>(num_reduced);
  axes.count = static_cast<int32_t>(program.axes.size() + static_cast<size_t>(singles));
  if (axes.count > tile::Program::kMaxAxes) return lacks("room for so many dims");
  int32_t next = 0;
  for (const Axis& axis : program.axes) axes.numbers.push_back(axis.reduced ? axes.count - 1 : next++);
  return axes;
}

Result<tile::Tensor> tileTensor(const View& view, DType dtype, const TileAxes& axes) {
  tile::Tensor tensor{dtype, {}};
  std::array<bool, tile::Program::kMaxAxes> used{};
  for (const ViewDim& dim : view.dims) {
    const bool plain = dim.start == graph::Dim{.value = 0} && (dim.axes.empty() || dim.step == 1);
    if (!plain || dim.axes.size() > 1) return lacks("slices or merged dims");
    tensor.axes.push_back(dim.axes.empty() ? -1 : axes.numbers[dim.axes[0]]);
    if (!dim.axes.empty()) used[tensor.axes.back()] = true;
  }
  // A dim of size 1 stands for any axis that is left; those that the outputs have for theirs come first.
  for (int32_t& axis : tensor.axes) {
    for (int32_t i = 0; axis < 0 && i < axes.count; ++i) {
      const int32_t candidate = (axes.first_single + i) % axes.count;
      if (!used[candidate]) axis = candidate;
    }
    if (axis < 0) return lacks("room for another dim of size 1");
    used[axis] = true;
  }
  return tensor;
}

Status convertTensors(const LoopProgram& program, const TileAxes& axes, tile::Program& result) {
  result.inputs.resize(program.inputs.size());
  result.outputs.resize(program.outputs.size());
  std::vector<bool> seen(program.inputs.size() + program.outputs.size());
  for (const View& view : program.views) {
    if (seen[view.tensor]) return lacks("second view of a tensor");
    seen[view.tensor] = true;
    QX_ASSIGN_OR_RETURN(const tile::Tensor tensor, tileTensor(view, program.tensorType(view.tensor).dtype, axes));
    const auto position = static_cast<size_t>(view.tensor);
    (position < result.inputs.size() ? result.inputs[position] : result.outputs[position - result.inputs.size()]) =
        tensor;
  }
  return ok_status();
}

Result<tile::Instruction> convertInstruction(const LoopProgram& program, const Instruction& code) {
  tile::Instruction result;
  result.dtype = code.dtype;
  std::ranges::copy(code.operands, result.operands);
  switch (code.opcode) {
    case Opcode::kLoad:
    case Opcode::kStore: {
      result.opcode = code.opcode == Opcode::kLoad ? tile::Opcode::kLoad : tile::Opcode::kStore;
      const int32_t tensor = program.views[code.index].tensor;
      const auto num_inputs = static_cast<int32_t>(program.inputs.size());
      result.index = tensor < num_inputs ? tensor : tensor - num_inputs;
      return result;
    }
    case Opcode::kConstant:
      result.number = is_floating_point(code.dtype) ? code.number : static_cast<double>(code.index);
      return result;
    case Opcode::kScalar:
      result.number = 1;
      for (const graph::Dim& dim : program.scalars[code.index]) {
        if (!dim.is_known()) return lacks("sizes that are chosen later as numbers");
        result.number *= static_cast<double>(dim.value);
      }
      return result;
    default: break;
  }
  const auto* found = std::ranges::find(kSame, code.opcode, &TileOpcode::loop);
  if (found == std::end(kSame)) return lacks(std::string(opcodeName(code.opcode)));
  result.opcode = found->tile;
  const bool compares = (code.opcode >= Opcode::kEq && code.opcode <= Opcode::kGe) || code.opcode == Opcode::kIsNan;
  if (compares) result.dtype = program.code[code.operands[0]].dtype;
  return result;
}

Result<tile::Program> tileProgram(const LoopProgram& program) {
  QX_ASSIGN_OR_RETURN(const TileAxes axes, numberAxes(program));
  tile::Program result;
  result.num_axes = axes.count;
  QX_RETURN_IF_ERROR(convertTensors(program, axes, result));
  for (const Instruction& code : program.code) {
    QX_ASSIGN_OR_RETURN(const tile::Instruction converted, convertInstruction(program, code));
    result.code.push_back(converted);
  }
  const Status status = tile::verify(result);
  return status.ok() ? Result<tile::Program>(std::move(result)) : unimplemented(status.message());
}

class TileKernel : public Kernel {
 public:
  explicit TileKernel(tile::Program program) : program_(std::move(program)) {}
  Status run(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
             std::span<const int64_t>) const override {
    return tile::run(program_, inputs, outputs);
  }
  // What tile::parse reads: the region's inputs and outputs are the program's, in order.
  std::string to_string() const override { return tile::to_text(program_); }

 private:
  const tile::Program program_;
};

class TileTarget : public Target {
 public:
  std::string_view name() const override { return "tile"; }
  Status supports(mlir::Operation* op) const override { return canLower(op); }

  Status accepts(llvm::ArrayRef<mlir::Operation*> ops) const override {
    if (ops.size() > kMaxRegionOps) return lacks("room for so many operations");
    QX_ASSIGN_OR_RETURN(const LoweredRegion region, lowerRegion(ops));
    return tileProgram(region.program).status();
  }

  int64_t cost(mlir::Operation* op) const override {
    return llvm::isa<mfuse::ReshapeOp, mfuse::PermuteOp, mfuse::BroadcastOp, mfuse::SliceOp>(op) ? 0 : 1;
  }

  Result<EmittedRegion> emit(llvm::ArrayRef<mlir::Operation*> ops, const std::string&,
                             const FuseOptions&) const override {
    QX_ASSIGN_OR_RETURN(LoweredRegion region, lowerRegion(ops));
    QX_ASSIGN_OR_RETURN(tile::Program program, tileProgram(region.program));
    auto kernel = std::make_shared<TileKernel>(std::move(program));
    return EmittedRegion{std::move(region.inputs), std::move(region.outputs), std::move(kernel)};
  }
};

}  // namespace

std::shared_ptr<const Target> createTileTarget() { return std::make_shared<TileTarget>(); }

}  // namespace qx::compiler
