// Runs tile programs on tensors.
//
//   QX_ASSIGN_OR_RETURN(const PreparedProgram prepared, PreparedProgram::create(*parse(text)));
//   QX_RETURN_IF_ERROR(prepared.run(inputs, outputs));   // as often as you like, at any sizes
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"
#include "quincunx/tile/program.h"
#include "quincunx/tile/schedule.h"

namespace qx::tile {

// A program that has been verified and laid out for the machine once. Immutable: any number of threads may run it.
class PreparedProgram {
 public:
  // INVALID_ARGUMENT names the instruction that verify() refuses.
  static Result<PreparedProgram> create(Program program);

  const Program& program() const { return program_; }

  // outputs = program(inputs). The sizes of the axes are those of the tensors; any strides, but an output has no zero
  // stride over a size other than 1 and overlaps no other tensor. Tiles are spread over the threads; the bits do not
  // depend on how many. f32 is computed with the widest vectors that the machine has, sums are taken in f64.
  // INVALID_ARGUMENT names the tensor that does not fit. Thread-safe.
  Status run(std::span<const TensorView> inputs, std::span<const TensorView> outputs) const;

 private:
  explicit PreparedProgram(Program program);

  Program program_;
  Schedule at_once_;
  Schedule by_passes_;
  std::vector<float> constants_;           // of the instructions, where they are constants of a float lane
  std::vector<int32_t> stored_to_;         // of the instructions: the output that a result of float32 goes to, or -1
  int64_t element_bytes_ = sizeof(float);  // the widest number that a register holds
  bool reduces_ = false;
  bool needs_elements_ = false;
};

// create() and run() for a program that is run once.
Status run(const Program& program, std::span<const TensorView> inputs, std::span<const TensorView> outputs);

}  // namespace qx::tile
