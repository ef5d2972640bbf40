// What each opcode is called and asks of its operands.
#pragma once

#include <array>
#include <string_view>

#include "quincunx/tile/program.h"

namespace qx::tile {

enum class OperandRule { kAny, kFloat, kBool, kSelect, kCast };

struct OpcodeInfo {
  Opcode opcode;
  std::string_view name;
  int num_operands;
  OperandRule rule;
};

inline constexpr std::array kOpcodes = {
    OpcodeInfo{Opcode::kLoad, "load", 0, OperandRule::kAny},
    OpcodeInfo{Opcode::kStore, "store", 1, OperandRule::kAny},
    OpcodeInfo{Opcode::kConstant, "constant", 0, OperandRule::kAny},
    OpcodeInfo{Opcode::kCast, "cast", 1, OperandRule::kCast},
    OpcodeInfo{Opcode::kNeg, "neg", 1, OperandRule::kAny},
    OpcodeInfo{Opcode::kAbs, "abs", 1, OperandRule::kAny},
    OpcodeInfo{Opcode::kExp, "exp", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kLog, "log", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kSqrt, "sqrt", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kRsqrt, "rsqrt", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kReciprocal, "reciprocal", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kTanh, "tanh", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kErf, "erf", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kSigmoid, "sigmoid", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kSin, "sin", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kCos, "cos", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kFloor, "floor", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kCeil, "ceil", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kRound, "round", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kIsNan, "isnan", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kNot, "not", 1, OperandRule::kBool},
    OpcodeInfo{Opcode::kAdd, "add", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kSub, "sub", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kMul, "mul", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kDiv, "div", 2, OperandRule::kFloat},
    OpcodeInfo{Opcode::kPow, "pow", 2, OperandRule::kFloat},
    OpcodeInfo{Opcode::kMax, "max", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kMin, "min", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kAnd, "and", 2, OperandRule::kBool},
    OpcodeInfo{Opcode::kOr, "or", 2, OperandRule::kBool},
    OpcodeInfo{Opcode::kEq, "eq", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kNe, "ne", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kLt, "lt", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kLe, "le", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kGt, "gt", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kGe, "ge", 2, OperandRule::kAny},
    OpcodeInfo{Opcode::kSelect, "select", 3, OperandRule::kSelect},
    OpcodeInfo{Opcode::kReduceSum, "reduce_sum", 1, OperandRule::kAny},
    OpcodeInfo{Opcode::kReduceMean, "reduce_mean", 1, OperandRule::kFloat},
    OpcodeInfo{Opcode::kReduceMax, "reduce_max", 1, OperandRule::kAny},
    OpcodeInfo{Opcode::kReduceMin, "reduce_min", 1, OperandRule::kAny},
};

constexpr bool opcodes_follow_the_enum() {
  for (size_t i = 0; i < kOpcodes.size(); ++i) {
    if (static_cast<size_t>(kOpcodes[i].opcode) != i) return false;
  }
  return true;
}
static_assert(opcodes_follow_the_enum());

inline const OpcodeInfo& info(Opcode opcode) { return kOpcodes[static_cast<size_t>(opcode)]; }

}  // namespace qx::tile
