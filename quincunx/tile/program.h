// A tile program: a fused region of elementwise operators, broadcasts and reductions of rows as data. It is
// straight-line code that is run for every point of an iteration space; run() in interpreter.h executes it in pieces
// that fit the cache. As text, which a graph's "qx.tile" node and so a .qxm file holds:
//
//   tile 1                              softmax over the last axis
//   axes 2
//   input float32 [0, 1]                dim 0 runs along axis 0, dim 1 along axis 1
//   output float32 [0, 1]
//   %0 = load float32 0
//   %1 = reduce_max float32 %0          over the last axis: the same all along a row
//   %2 = sub float32 %0 %1
//   %3 = exp float32 %2
//   %4 = reduce_sum float32 %3
//   %5 = div float32 %3 %4
//   %6 = store float32 %5 0             to output 0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/base/dtype.h"
#include "quincunx/base/status.h"

namespace qx::tile {

// An instruction has a dtype: of its result, of what a store writes, of the operands of a comparison. Arithmetic on
// bfloat16 and float16 is done in f32; only a cast or a store rounds to them. Integers wrap around.
enum class Opcode : uint8_t {
  kLoad,      // index: the input; gives the input's dtype
  kStore,     // a; index: the output, of the output's dtype
  kConstant,  // number
  kCast,      // a float becomes an integer by truncation, within the integer's range, NaN becomes 0
  kNeg,
  kAbs,
  kExp,  // from here to kIsNan: floats
  kLog,
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
  kIsNan,  // gives bool
  kNot,    // of bool
  kAdd,
  kSub,
  kMul,
  kDiv,  // floats
  kPow,  // floats
  kMax,  // NaN if either is
  kMin,
  kAnd,  // of bool, as kOr
  kOr,
  kEq,  // comparisons give bool
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kSelect,      // bool a ? b : c
  kReduceSum,   // along the last axis
  kReduceMean,  // floats
  kReduceMax,   // NaN if any is; rows must not be empty
  kReduceMin,
};

std::string_view opcode_name(Opcode opcode);
int num_operands(Opcode opcode);
bool is_reduction(Opcode opcode);

struct Instruction {
  Opcode opcode = Opcode::kConstant;
  DType dtype = DType::kFloat32;
  int32_t operands[3] = {-1, -1, -1};
  int32_t index = 0;
  double number = 0;

  bool operator==(const Instruction&) const = default;
};

// Along which axis each dim of a tensor runs; axes that no dim has repeat the tensor. A dim of size 1 may stand for an
// axis of any size.
struct Tensor {
  DType dtype = DType::kFloat32;
  std::vector<int32_t> axes;

  bool operator==(const Tensor&) const = default;
};

struct Program {
  static constexpr int kMaxAxes = 8;
  static constexpr size_t kMaxTensors = 64;
  static constexpr size_t kMaxInstructions = 1024;

  int32_t num_axes = 0;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::vector<Instruction> code;

  bool operator==(const Program&) const = default;
};

// The dtypes of values: bool, uint8, int32, int64, float16, bfloat16, float32, float64.
bool is_supported(DType dtype);

// The dtype of an instruction's result: bool for a comparison, else the instruction's own.
DType result_dtype(const Instruction& instruction);

// Every index in range, operands before their use and of the right dtype, each output stored once and with all axes
// but the last, which it lacks only if what it gets is the same all along a row. INVALID_ARGUMENT names the line.
Status verify(const Program& program);

// Equal programs, and only they, give equal text.
std::string to_text(const Program& program);

// INVALID_ARGUMENT for a text that to_text() does not write, and for what verify() refuses.
Result<Program> parse(std::string_view text);

// The pass over a row in which each value is known: 0 without a reduction, one more than its operand's for a reduction.
std::vector<int> levels(const Program& program);

// Which values are the same all along the last axis.
std::vector<bool> row_constants(const Program& program);

}  // namespace qx::tile
