// A fused region as data: straight-line code that is run for every point of an iteration space. It stands between the
// mfuse dialect and machine code, holds no pointer and no size that is chosen later, and its text is the kernel's
// identity in the cache.
//
//   rms_norm over [s0, 64]:        axis 0: s0, axis 1: 64 reduced
//     %0 = load view 0             float32    x[0, 1]
//     %1 = mul %0 %0
//     %2 = sum %1                             over the reduced axes: constant along them from here on
//     %3 = scalar 0                int64      64
//     ...
//     store view 2 %9
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/base/dtype.h"
#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::compiler {

// What an instruction does with its operands a, b, c. Arithmetic on bfloat16 and float16 is done in f32, and only a
// cast or a store rounds to them. Integers wrap around. Comparisons, isnan, and/or/xor/not on bool give bool.
enum class Opcode : uint8_t {
  kLoad,      // index: the view
  kStore,     // index: the view; gives nothing
  kConstant,  // number, or index for integers and bool
  kScalar,    // index: into LoopProgram::scalars; int64
  kCast,
  kNeg,
  kAbs,
  kSign,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kTanh,
  kErf,
  kSigmoid,
  kSin,
  kCos,
  kFloor,
  kCeil,
  kRound,  // half to even
  kTrunc,
  kNot,
  kIsNan,
  kAdd,
  kSub,
  kMul,
  kDiv,        // of floats
  kFloorDiv,   // towards minus infinity; an integer divided by zero gives 0
  kRemainder,  // a - floor(a / b) b, the sign of b
  kPow,        // of floats
  kMax,        // NaN if either is
  kMin,
  kAnd,
  kOr,
  kXor,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kSelect,  // a ? b : c
  kReduceSum,
  kReduceProd,
  kReduceMax,  // NaN if any is; the reduced axes must not be empty
  kReduceMin,
};
std::string_view opcodeName(Opcode opcode);
int numOperands(Opcode opcode);
bool isReduction(Opcode opcode);

struct Instruction {
  Opcode opcode = Opcode::kConstant;
  DType dtype = DType::kFloat32;  // of the result; of the stored value
  int32_t operands[3] = {-1, -1, -1};
  int64_t index = 0;
  double number = 0;

  bool operator==(const Instruction&) const = default;
};

struct Axis {
  graph::Dim size;
  // All reductions of a program run over all of its reduced axes.
  bool reduced = false;
};

// One dim of a tensor: index = start + step * (its axes read as one row-major number). No axes: the index is `start`.
struct ViewDim {
  std::vector<int32_t> axes;
  graph::Dim start;
  int64_t step = 1;
};

// Elements of tensor `tensor`: the inputs count first, then the outputs. Axes that no dim has broadcast it.
struct View {
  int32_t tensor = 0;
  std::vector<ViewDim> dims;
};

struct LoopProgram {
  static constexpr int kMaxAxes = 8;
  static constexpr int kMaxViews = 48;

  std::vector<graph::TensorType> inputs;
  std::vector<graph::TensorType> outputs;
  std::vector<Axis> axes;
  std::vector<View> views;
  // Products of sizes, read by kScalar.
  std::vector<std::vector<graph::Dim>> scalars;
  std::vector<Instruction> code;

  const graph::TensorType& tensorType(int32_t tensor) const;
  // Appends and returns the number of the instruction's result.
  int32_t add(Opcode opcode, DType dtype, int32_t a = -1, int32_t b = -1, int32_t c = -1);
  int32_t constant(DType dtype, double value);
};

// Every index in range, operands before use and of fitting types, outputs stored once, reduced axes only where a
// reduction or an element stands. INTERNAL: programs are made here, not read from outside.
Status verify(const LoopProgram& program);

// One line an axis, view and instruction. Equal programs, and only they, give equal text.
std::string to_string(const LoopProgram& program);

// The value of a dim when `symbols` are chosen.
int64_t evaluate(const graph::Dim& dim, const int64_t* symbols);

// Which instructions are constant along the reduced axes ("row"), and in which pass over those axes each value is
// known: level 0 needs no reduction, level n + 1 needs one of a value of level n.
struct LoopLevels {
  std::vector<bool> row;
  std::vector<int> level;
  int num_levels = 1;
};
LoopLevels analyseLevels(const LoopProgram& program);

}  // namespace qx::compiler
