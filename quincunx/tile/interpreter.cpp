#include "quincunx/tile/interpreter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "quincunx/parallel/parallel_for.h"
#include "quincunx/tile/binding.h"
#include "quincunx/tile/block.h"
#include "quincunx/tile/machine.h"

namespace qx::tile {
namespace {

// A thread is given at least so many elements: below, waking it costs more than it does.
constexpr int64_t kGrain = 16 * 1024;
// A register of floats is 8 KiB: the few that a program uses at a time stay in the first-level cache, and an
// instruction takes long enough that finding it costs nothing.
constexpr int64_t kTileElements = 2048;

bool is_float_lane(DType dtype) { return lane_of(dtype) == Lane::kFloat; }

// For each instruction the output that its result may be written to at once.
std::vector<int32_t> find_targets(const Program& program) {
  std::vector<int32_t> targets(program.code.size(), -1);
  for (const Instruction& store : program.code) {
    if (store.opcode != Opcode::kStore || store.dtype != DType::kFloat32) continue;
    if (program.outputs[static_cast<size_t>(store.index)].axes.size() != static_cast<size_t>(program.num_axes))
      continue;
    const auto origin = static_cast<size_t>(origin_of(program, store.operands[0]));
    if (targets[origin] < 0 && program.code[origin].opcode > Opcode::kCast) targets[origin] = store.index;
  }
  return targets;
}

std::vector<float> float_constants(const Program& program) {
  std::vector<float> constants(program.code.size(), 0.0f);
  for (size_t i = 0; i < constants.size(); ++i) {
    const Instruction& instruction = program.code[i];
    if (instruction.opcode != Opcode::kConstant || !is_float_lane(instruction.dtype)) continue;
    fill_block(instruction.dtype, instruction.number, 1, &constants[i]);
  }
  return constants;
}

}  // namespace

PreparedProgram::PreparedProgram(Program program)
    : program_(std::move(program)),
      at_once_(schedule_at_once(program_)),
      by_passes_(schedule_by_passes(program_)),
      constants_(float_constants(program_)),
      stored_to_(find_targets(program_)) {
  for (const Instruction& instruction : program_.code) {
    reduces_ = reduces_ || is_reduction(instruction.opcode);
    needs_elements_ =
        needs_elements_ || instruction.opcode == Opcode::kReduceMax || instruction.opcode == Opcode::kReduceMin;
    for (const DType dtype : {instruction.dtype, result_dtype(instruction)}) {
      element_bytes_ = std::max(element_bytes_, lane_bytes(lane_of(dtype)));
    }
  }
}

Result<PreparedProgram> PreparedProgram::create(Program program) {
  QX_RETURN_IF_ERROR(verify(program));
  return PreparedProgram(std::move(program));
}

Status PreparedProgram::run(std::span<const TensorView> inputs, std::span<const TensorView> outputs) const {
  QX_ASSIGN_OR_RETURN(const Binding binding, bind(program_, inputs, outputs));
  const int64_t length = binding.row_length();
  const int64_t num_rows = binding.num_rows();
  if (num_rows == 0) return ok_status();
  if (length == 0 && needs_elements_) {
    return invalid_argument("inputs: expected rows of at least one element for reduce_max and reduce_min, got none");
  }
  // The last axis but one, along which the rows of a tile lie.
  const int64_t inner_rows = binding.sizes.size() < 2 ? 1 : binding.sizes[binding.sizes.size() - 2];
  const int64_t columns = std::min(length, kTileElements);
  const int64_t rows = std::clamp<int64_t>(kTileElements / std::max<int64_t>(columns, 1), 1, inner_rows);
  const bool by_passes = reduces_ && length > kTileElements;
  const int64_t pieces = by_passes || length == 0 ? 1 : (length + columns - 1) / columns;
  const int64_t row_tiles = (inner_rows + rows - 1) / rows;
  const int64_t tasks = num_rows / inner_rows * row_tiles * pieces;
  const Code code = {program_, by_passes ? by_passes_ : at_once_, constants_, stored_to_, element_bytes_};
  const int64_t task_elements = by_passes ? length : rows * columns;
  parallel_for(0, tasks, std::max<int64_t>(1, kGrain / std::max<int64_t>(task_elements, 1)),
               [&](int64_t begin, int64_t end) {
                 Machine machine(code, binding, kTileElements);
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t row = task / pieces % row_tiles * rows;
                   const int64_t column = task % pieces * columns;
                   const Tile tile = {task / pieces / row_tiles,
                                      row,
                                      column,
                                      {std::min(rows, inner_rows - row), std::min(columns, length - column)}};
                   if (by_passes) {
                     machine.run_row({tile.outer, row, 0, {1, length}}, kTileElements);
                   } else {
                     machine.run(tile);
                   }
                 }
               });
  return ok_status();
}

Status run(const Program& program, std::span<const TensorView> inputs, std::span<const TensorView> outputs) {
  QX_ASSIGN_OR_RETURN(const PreparedProgram prepared, PreparedProgram::create(program));
  return prepared.run(inputs, outputs);
}

}  // namespace qx::tile
