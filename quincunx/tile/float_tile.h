// The arithmetic of tile programs on f32, with the widest vectors that the machine has. Rounding is that of the single
// operations: nothing is contracted, so that +, -, *, / and sqrt give the same bits on every instruction set.
#pragma once

#include <cstdint>

#include "quincunx/tile/program.h"

namespace qx::tile {

// Element (row, column) stands at data[row * row_stride + column * column_stride].
struct FloatOperand {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;  // 1, or 0 for a value that is the same all along a row
};

struct TileSize {
  int64_t rows = 0;
  int64_t columns = 0;
};

// result[row * row_stride + column] = opcode(a, b), b being read by opcodes of two operands. Every opcode from kNeg to
// kMin but kIsNan and kNot. The result overlaps no operand, unless it is the same elements in the same places.
void compute_float(Opcode opcode, const FloatOperand& a, const FloatOperand& b, const TileSize& size, float* result,
                   int64_t row_stride);

// kEq to kGe, and kIsNan of a: 1 or 0 into result[row * columns + column].
void compare_float(Opcode opcode, const FloatOperand& a, const FloatOperand& b, const TileSize& size, uint8_t* result);

// condition[row * columns + column] ? a : b
void select_float(const uint8_t* condition, const FloatOperand& a, const FloatOperand& b, const TileSize& size,
                  float* result, int64_t row_stride);

// totals[row] = totals[row] + sum, or the larger or smaller of the two, for each row; sums in f64, in an order that
// depends on the number of columns and the instruction set only. kReduceMean sums like kReduceSum.
void reduce_float(Opcode opcode, const FloatOperand& a, const TileSize& size, double* totals);

// A row of compute_float().
void compute_float_row(Opcode opcode, const float* a, const float* b, int64_t count, float* result);

}  // namespace qx::tile
