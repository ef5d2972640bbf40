// How one call runs a loop program: which axes become which loops, decided by the sizes and strides of that call.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/compiler/codegen/loop_emitter.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::compiler {

// What a program demands of every call.
class LoopSignature {
 public:
  explicit LoopSignature(const LoopProgram& program);

  const LoopProgram& program() const { return program_; }
  // Whether the innermost loop runs over a reduced axis: if the program's last axis is one.
  bool vectorIsReduced() const { return vector_is_reduced_; }
  int numReduced() const { return num_reduced_; }
  // Loops that the compiled function has.
  int numLoops() const { return 2 + num_reduced_ - (vector_is_reduced_ ? 1 : 0); }
  // Of contiguous tensors.
  const std::vector<VectorStride>& expectedStrides() const { return expected_strides_; }

  // Counts, dtypes, shapes, overlaps and reductions of nothing. INVALID_ARGUMENT names the view: "inputs[1]".
  Status check(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
               std::span<const int64_t> symbols) const;

 private:
  LoopProgram program_;
  bool vector_is_reduced_ = false;
  int num_reduced_ = 0;
  int32_t num_symbols_ = 0;
  bool needs_elements_ = false;
  std::vector<VectorStride> expected_strides_;
};

struct LoopPlan {
  static constexpr int kMaxLoops = LoopProgram::kMaxAxes + 2;

  // The loops around the compiled function, outermost first; it runs the last of them itself.
  int num_outer = 0;
  std::array<int64_t, LoopProgram::kMaxAxes + 1> outer_sizes{};
  std::array<std::array<int64_t, LoopProgram::kMaxAxes + 1>, LoopProgram::kMaxViews> outer_strides{};
  int64_t num_rows = 1;  // product of outer_sizes

  // For the compiled function, see LoopFunction.
  std::array<void*, LoopProgram::kMaxViews> views{};
  std::array<int64_t, LoopProgram::kMaxViews * kMaxLoops> strides{};
  std::array<int64_t, kMaxLoops> sizes{};
  std::array<VectorStride, LoopProgram::kMaxViews> vector_strides{};
  // Elements of the reduced axes that are no vector axis, and of those below a row.
  int64_t reduced_elements = 1;
  int64_t row_elements = 1;

  int64_t vectorSize(const LoopSignature& signature) const { return sizes[signature.numLoops() - 1]; }
};

// For tensors that check() accepted. INVALID_ARGUMENT if a view leaves its tensor.
Status makePlan(const LoopSignature& signature, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                std::span<const int64_t> symbols, LoopPlan& plan);

}  // namespace qx::compiler
