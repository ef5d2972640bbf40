// LLVM IR of a loop program. The loops and the vectors are written out here; sizes and strides are arguments, so one
// function serves all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quincunx/compiler/codegen/loop_program.h"
#include "quincunx/compiler/jit/jit.h"

namespace qx::compiler {

// How a view moves along the vector loop.
enum class VectorStride : char { kUnit = 'u', kZero = 'z', kOther = 's' };

// One way to run a program.
struct LoopVariant {
  // The innermost loop, which is cut into vectors, runs over a reduced axis (partial results are combined across lanes)
  // or over another one (each lane has results of its own).
  bool vector_is_reduced = false;
  // Values that cost much and are needed in several passes over the reduced axes are kept in between.
  bool keeps_values = false;
  // One for each view; of no meaning where the vector axis is reduced and the view lacks it.
  std::vector<VectorStride> strides;
};
// For the kernel's identity.
std::string to_string(const LoopVariant& variant);

// The arguments of a compiled loop. `strides` has, for each view, the bytes that one step of each loop moves it:
// rows, then all reduced axes but the vector's in the program's order, then the vector axis; `sizes` follows that
// order. `kept` has room for one vector for each kept value and each step of the loops below the rows.
using LoopFunction = void (*)(void* const* views, const int64_t* strides, const int64_t* sizes, const int64_t* scalars,
                              std::byte* kept);

// A value that a variant with keeps_values writes to `kept` in the pass `first` and reads in later ones.
struct KeptValue {
  int32_t instruction = 0;
  int first = 0;
};
std::vector<KeptValue> keptValues(const LoopProgram& program);
inline constexpr int64_t kKeptElementBytes = 8;

// Whether an instruction costs as much as many additions.
bool isExpensive(Opcode opcode);

// Builds a module with one function `name` of type LoopFunction. The arguments must outlive the builder.
ModuleBuilder loopBuilder(const LoopProgram& program, const LoopVariant& variant, const std::string& name);

}  // namespace qx::compiler
