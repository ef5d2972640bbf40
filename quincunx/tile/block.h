// One instruction on a dense block of numbers: what float_tile.h does not do. Values stand in registers: float for
// float32, bfloat16 and float16, double for float64, int64 for integers, uint8 for bool.
#pragma once

#include <cstdint>

#include "quincunx/tile/program.h"

namespace qx::tile {

enum class Lane { kFloat, kDouble, kInteger, kBool };
Lane lane_of(DType dtype);
int64_t lane_bytes(Lane lane);

// `address` is of element 0 of the block.
void load_block(DType dtype, const void* address, int64_t stride, int64_t count, void* out);
void store_block(DType dtype, const void* values, int64_t count, void* address, int64_t stride);
void fill_block(DType dtype, double number, int64_t count, void* out);
void cast_block(DType from, DType to, const void* a, int64_t count, void* out);
// Every other opcode but reductions, on operands that are no floats; `operand_dtype` is of a, and of b where the opcode
// is select.
void compute_block(const Instruction& instruction, DType operand_dtype, const void* a, const void* b, const void* c,
                   int64_t count, void* out);

// What a reduction of numbers that are no floats knows of the part of the row that it has seen.
class Accumulator {
 public:
  void reset(const Instruction& instruction);
  void add(const void* values, int64_t count);
  // Writes the result `count` times.
  void finish(int64_t row_length, int64_t count, void* out) const;

 private:
  static constexpr int64_t kParts = 8;  // independent sums, so that additions need not wait for one another

  Opcode opcode_ = Opcode::kReduceSum;
  DType dtype_ = DType::kFloat32;
  double parts_[kParts] = {};
  int64_t integer_ = 0;
};

}  // namespace qx::tile
