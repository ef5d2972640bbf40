// One thread that runs a schedule on one tile after another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quincunx/tile/binding.h"
#include "quincunx/tile/block.h"
#include "quincunx/tile/float_tile.h"
#include "quincunx/tile/program.h"
#include "quincunx/tile/schedule.h"

namespace qx::tile {

// What a program looks like to the machine: see PreparedProgram.
struct Code {
  const Program& program;
  const Schedule& schedule;
  std::span<const float> constants;
  std::span<const int32_t> stored_to;
  int64_t element_bytes = sizeof(float);
};

// Rows that lie next to one another along the last axis but one, whole or a piece of each.
struct Tile {
  int64_t outer = 0;  // the index over all axes but the last two
  int64_t row = 0;    // along the last axis but one
  int64_t column = 0;
  TileSize size;
};

class Machine {
 public:
  // A register holds `max_elements` numbers.
  Machine(const Code& code, const Binding& binding, int64_t max_elements);

  // A tile for a schedule of one pass. Where the program reduces, it holds whole rows.
  void run(const Tile& tile);
  // A whole row for a schedule of passes, `piece` columns at a time.
  void run_row(const Tile& row, int64_t piece);

 private:
  // Where a value of the tile stands. Floats may be the same along a row or in every row; other numbers stand densely.
  struct Value {
    const char* data = nullptr;
    int64_t row_stride = 0;
    int64_t column_stride = 0;
  };

  // What a thread keeps between programs, because small ones take no longer than an allocation.
  struct Memory {
    std::vector<char> registers;
    std::vector<Value> values;   // of the instructions
    std::vector<double> totals;  // of reductions of floats: for each row of the tile, or for each instruction
    std::vector<Accumulator> accumulators;  // of other reductions, likewise
    std::vector<char*> inputs;              // element (0, 0) of the tile
    std::vector<char*> outputs;
  };
  static Memory& memory_of_thread();

  void locate(const Tile& tile);
  void execute(const Step& step);
  Value loaded(const Instruction& instruction, int32_t slot);
  void store(const Instruction& instruction);
  void store_floats(const Value& value, const BoundTensor& tensor, char* address, int64_t columns);
  Value constant(const Step& step);
  Value cast(const Step& step);
  Value computed(const Step& step);
  Value computed_floats(const Step& step);
  Value selected_floats(const Step& step);
  void start_reduction(const Instruction& instruction, size_t first, size_t count);
  void reduce(const Instruction& instruction, size_t first);
  Value reduced(const Step& step, size_t first, int64_t row_length);

  const Instruction& code(int32_t number) const { return code_.program.code[static_cast<size_t>(number)]; }
  DType dtype_of(int32_t number) const { return result_dtype(code(number)); }
  const Value& value_of(int32_t number) const { return memory_.values[static_cast<size_t>(number)]; }
  FloatOperand floats(int32_t number) const;
  // Where a result of floats for every row and column goes: its register, or straight to the output.
  Value target(const Step& step);
  // The value with every number in its place: where it is already, or in register `scratch`.
  const char* dense(int32_t number, int32_t scratch);
  char* at(int32_t slot) const;
  // Columns of a dense value: what is the same all along an empty row still stands in one.
  int64_t dense_columns() const { return tile_.size.columns > 0 ? tile_.size.columns : 1; }
  int64_t dense_count() const { return tile_.size.rows * dense_columns(); }

  const Code code_;
  const Binding& binding_;
  const int64_t max_elements_;
  Memory& memory_;
  Tile tile_;
  bool last_pass_ = true;
};

}  // namespace qx::tile
