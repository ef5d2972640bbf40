#include "quincunx/tile/machine.h"

#include <algorithm>
#include <limits>

#include "quincunx/kernels/convert/convert.h"

namespace qx::tile {
namespace {

// Registers beside the schedule's, for operands that have to be laid out densely.
constexpr int32_t kNumScratch = 3;

bool is_float_lane(DType dtype) { return lane_of(dtype) == Lane::kFloat; }

bool is_comparison(Opcode opcode) {
  return (opcode >= Opcode::kEq && opcode <= Opcode::kGe) || opcode == Opcode::kIsNan;
}

int64_t row_stride_of(const BoundTensor& tensor) {
  return tensor.strides.size() < 2 ? 0 : tensor.strides[tensor.strides.size() - 2];
}

const float* as_floats(const char* data) { return reinterpret_cast<const float*>(data); }
float* as_floats(char* data) { return reinterpret_cast<float*>(data); }

}  // namespace

Machine::Memory& Machine::memory_of_thread() {
  thread_local Memory memory;
  return memory;
}

Machine::Machine(const Code& code, const Binding& binding, int64_t max_elements)
    : code_(code), binding_(binding), max_elements_(max_elements), memory_(memory_of_thread()) {
  const int64_t num_registers = code.schedule.num_slots + kNumScratch;
  const auto bytes = static_cast<size_t>(num_registers * max_elements * code.element_bytes);
  if (memory_.registers.size() < bytes) memory_.registers.resize(bytes);
  const size_t count = code.program.code.size();
  memory_.values.assign(count, {});
  memory_.totals.resize(std::max(count, static_cast<size_t>(max_elements)));
  memory_.inputs.resize(binding.inputs.size());
  memory_.outputs.resize(binding.outputs.size());
}

char* Machine::at(int32_t slot) const {
  return memory_.registers.data() + static_cast<int64_t>(slot) * max_elements_ * code_.element_bytes;
}

void Machine::locate(const Tile& tile) {
  tile_ = tile;
  const size_t num_axes = binding_.sizes.size();
  const auto place = [&](const BoundTensor& tensor) {
    int64_t offset = tile.row * row_stride_of(tensor) + tile.column * tensor.strides.back();
    int64_t outer = tile.outer;
    for (size_t axis = num_axes < 2 ? 0 : num_axes - 2; axis-- > 0;) {
      offset += outer % binding_.sizes[axis] * tensor.strides[axis];
      outer /= binding_.sizes[axis];
    }
    return tensor.data + offset * dtype_size_bytes(tensor.dtype);
  };
  std::ranges::transform(binding_.inputs, memory_.inputs.begin(), place);
  std::ranges::transform(binding_.outputs, memory_.outputs.begin(), place);
}

void Machine::run(const Tile& tile) {
  locate(tile);
  const auto rows = static_cast<size_t>(tile.size.rows);
  for (const Step& step : code_.schedule.passes[0]) {
    const Instruction& instruction = code(step.instruction);
    if (!is_reduction(instruction.opcode)) {
      execute(step);
      continue;
    }
    start_reduction(instruction, 0, rows);
    reduce(instruction, 0);
    memory_.values[static_cast<size_t>(step.instruction)] = reduced(step, 0, tile.size.columns);
  }
}

void Machine::run_row(const Tile& row, int64_t piece) {
  const int64_t length = row.size.columns;
  for (const std::vector<Step>& pass : code_.schedule.passes) {
    last_pass_ = &pass == &code_.schedule.passes.back();
    const auto for_each_reduction = [&](const auto& body) {
      for (const Step& step : pass) {
        if (is_reduction(code(step.instruction).opcode)) body(step, static_cast<size_t>(step.instruction));
      }
    };
    for_each_reduction([&](const Step& step, size_t at) { start_reduction(code(step.instruction), at, 1); });
    for (int64_t first = 0; first < length; first += piece) {
      locate({row.outer, row.row, first, {1, std::min(piece, length - first)}});
      for (const Step& step : pass) {
        if (is_reduction(code(step.instruction).opcode)) {
          reduce(code(step.instruction), static_cast<size_t>(step.instruction));
        } else {
          execute(step);
        }
      }
    }
    tile_.size.columns = std::min(piece, length);
    for_each_reduction([&](const Step& step, size_t at) { memory_.values[at] = reduced(step, at, length); });
  }
}

void Machine::execute(const Step& step) {
  const Instruction& instruction = code(step.instruction);
  Value& value = memory_.values[static_cast<size_t>(step.instruction)];
  switch (instruction.opcode) {
    case Opcode::kLoad: value = loaded(instruction, step.slot); return;
    case Opcode::kStore: store(instruction); return;
    case Opcode::kConstant: value = constant(step); return;
    case Opcode::kCast: value = cast(step); return;
    default: value = computed(step); return;
  }
}

Machine::Value Machine::loaded(const Instruction& instruction, int32_t slot) {
  const auto index = static_cast<size_t>(instruction.index);
  const BoundTensor& tensor = binding_.inputs[index];
  const char* address = memory_.inputs[index];
  const int64_t row_step = row_stride_of(tensor), column_step = tensor.strides.back();
  const auto [rows, columns] = tile_.size;
  if (tensor.dtype == DType::kFloat32 && (column_step == 0 || column_step == 1)) {
    return {address, row_step, column_step};
  }
  const int64_t bytes = dtype_size_bytes(tensor.dtype);
  char* const out = at(slot);
  if (!is_float_lane(tensor.dtype)) {
    const int64_t count = column_step == 0 ? dense_columns() : columns;
    for (int64_t row = 0; row < rows && count > 0; ++row) {
      load_block(tensor.dtype, address + row * row_step * bytes, column_step, count,
                 out + row * dense_columns() * lane_bytes(lane_of(tensor.dtype)));
    }
    return {out};
  }
  if (column_step == 0) {
    const int64_t count = row_step == 0 ? 1 : rows;
    kernels::load_row_as_f32(tensor.dtype, address, row_step, count, as_floats(out));
    return {out, row_step == 0 ? 0 : 1, 0};
  }
  const int64_t loaded_rows = row_step == 0 ? 1 : rows;
  for (int64_t row = 0; row < loaded_rows && columns > 0; ++row) {
    kernels::load_row_as_f32(tensor.dtype, address + row * row_step * bytes, column_step, columns,
                             as_floats(out) + row * columns);
  }
  return {out, row_step == 0 ? 0 : columns, 1};
}

void Machine::store(const Instruction& instruction) {
  const auto index = static_cast<size_t>(instruction.index);
  const BoundTensor& tensor = binding_.outputs[index];
  const bool one_a_row = code_.program.outputs[index].axes.size() < static_cast<size_t>(code_.program.num_axes);
  if (one_a_row && tile_.column > 0) return;
  const int64_t columns = one_a_row ? 1 : tile_.size.columns;
  if (columns == 0) return;
  char* const address = memory_.outputs[index];
  const Value& value = value_of(instruction.operands[0]);
  if (value.data == address) return;  // it was computed there
  if (is_float_lane(tensor.dtype)) return store_floats(value, tensor, address, columns);
  for (int64_t row = 0; row < tile_.size.rows; ++row) {
    const char* from = value.data + row * dense_columns() * lane_bytes(lane_of(tensor.dtype));
    store_block(tensor.dtype, from, columns, address + row * row_stride_of(tensor) * dtype_size_bytes(tensor.dtype),
                columns == 1 ? 1 : tensor.strides.back());
  }
}

void Machine::store_floats(const Value& value, const BoundTensor& tensor, char* address, int64_t columns) {
  const int64_t row_step = row_stride_of(tensor);
  const int64_t bytes = dtype_size_bytes(tensor.dtype);
  const int64_t rows = tile_.size.rows;
  const float* from = as_floats(value.data);
  if (columns == 1 && value.row_stride == 1) {
    return kernels::store_row_from_f32(from, rows, tensor.dtype, address, row_step);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const float* source = from + row * value.row_stride;
    if (value.column_stride == 0 && columns > 1) {
      float* const repeated = as_floats(at(code_.schedule.num_slots));
      std::fill_n(repeated, columns, *source);
      source = repeated;
    }
    kernels::store_row_from_f32(source, columns, tensor.dtype, address + row * row_step * bytes,
                                columns == 1 ? 1 : tensor.strides.back());
  }
}

Machine::Value Machine::constant(const Step& step) {
  const Instruction& instruction = code(step.instruction);
  if (is_float_lane(instruction.dtype)) {
    return {reinterpret_cast<const char*>(&code_.constants[static_cast<size_t>(step.instruction)])};
  }
  fill_block(instruction.dtype, instruction.number, dense_count(), at(step.slot));
  return {at(step.slot)};
}

Machine::Value Machine::cast(const Step& step) {
  const Instruction& instruction = code(step.instruction);
  const int32_t operand = instruction.operands[0];
  if (is_alias(code_.program, instruction)) return value_of(operand);
  const DType from = dtype_of(operand);
  const char* const source = dense(operand, code_.schedule.num_slots);
  char* const out = at(step.slot);
  if (is_float_lane(from) && is_float_lane(instruction.dtype)) {  // to a narrow float and back
    char* const narrow = at(code_.schedule.num_slots + 1);
    kernels::store_row_from_f32(as_floats(source), dense_count(), instruction.dtype, narrow, 1);
    kernels::load_row_as_f32(instruction.dtype, narrow, 1, dense_count(), as_floats(out));
  } else {
    cast_block(from, instruction.dtype, source, dense_count(), out);
  }
  return {out, dense_columns(), 1};
}

Machine::Value Machine::computed(const Step& step) {
  const Instruction& instruction = code(step.instruction);
  const bool selects = instruction.opcode == Opcode::kSelect;
  const DType operand_dtype = dtype_of(instruction.operands[0]);
  if (is_float_lane(selects ? instruction.dtype : operand_dtype)) {
    if (selects) return selected_floats(step);
    if (!is_comparison(instruction.opcode)) return computed_floats(step);
    const int32_t second = instruction.operands[num_operands(instruction.opcode) - 1];
    compare_float(instruction.opcode, floats(instruction.operands[0]), floats(second),
                  {tile_.size.rows, dense_columns()}, reinterpret_cast<uint8_t*>(at(step.slot)));
    return {at(step.slot)};
  }
  const auto operand = [&](int i) {
    const bool is_read = i < num_operands(instruction.opcode);
    return is_read ? dense(instruction.operands[i], code_.schedule.num_slots + i) : nullptr;
  };
  compute_block(instruction, operand_dtype, operand(0), operand(1), operand(2), dense_count(), at(step.slot));
  return {at(step.slot)};
}

FloatOperand Machine::floats(int32_t number) const {
  const Value& value = value_of(number);
  return {as_floats(value.data), value.row_stride, value.column_stride};
}

Machine::Value Machine::target(const Step& step) {
  const int32_t output = last_pass_ ? code_.stored_to[static_cast<size_t>(step.instruction)] : -1;
  if (output >= 0) {
    const BoundTensor& tensor = binding_.outputs[static_cast<size_t>(output)];
    if (tensor.strides.back() == 1) {
      return {memory_.outputs[static_cast<size_t>(output)], row_stride_of(tensor), 1};
    }
  }
  return {at(step.slot), tile_.size.columns, 1};
}

Machine::Value Machine::computed_floats(const Step& step) {
  const Opcode opcode = code(step.instruction).opcode;
  const FloatOperand a = floats(code(step.instruction).operands[0]);
  const FloatOperand b = num_operands(opcode) == 1 ? a : floats(code(step.instruction).operands[1]);
  const bool same_rows = tile_.size.rows > 1 && a.row_stride == 0 && b.row_stride == 0;
  const int64_t rows = same_rows ? 1 : tile_.size.rows;
  if (a.column_stride == 1 || b.column_stride == 1) {
    Value value = same_rows ? Value{at(step.slot), 0, 1} : target(step);
    compute_float(opcode, a, b, {rows, tile_.size.columns}, as_floats(const_cast<char*>(value.data)),
                  same_rows ? tile_.size.columns : value.row_stride);
    return value;
  }
  // One number a row: the rows are computed like columns.
  float* const out = as_floats(at(step.slot));
  const auto is_plain = [](int64_t stride) { return stride == 0 || stride == 1; };
  if (is_plain(a.row_stride) && is_plain(b.row_stride)) {
    compute_float(opcode, {a.data, 0, a.row_stride}, {b.data, 0, b.row_stride}, {1, rows}, out, rows);
  } else {
    compute_float(opcode, a, b, {rows, 1}, out, 1);
  }
  return {at(step.slot), same_rows ? 0 : 1, 0};
}

Machine::Value Machine::selected_floats(const Step& step) {
  const Instruction& instruction = code(step.instruction);
  const auto* condition = reinterpret_cast<const uint8_t*>(value_of(instruction.operands[0]).data);
  Value value = tile_.size.columns > 0 ? target(step) : Value{at(step.slot), 1, 1};
  select_float(condition, floats(instruction.operands[1]), floats(instruction.operands[2]),
               {tile_.size.rows, dense_columns()}, as_floats(const_cast<char*>(value.data)), value.row_stride);
  return value;
}

const char* Machine::dense(int32_t number, int32_t scratch) {
  const Value& value = value_of(number);
  if (!is_float_lane(dtype_of(number))) return value.data;
  const int64_t columns = dense_columns();
  if (value.column_stride == 1 && (value.row_stride == columns || tile_.size.rows == 1)) return value.data;
  float* const out = as_floats(at(scratch));
  for (int64_t row = 0; row < tile_.size.rows; ++row) {
    const float* from = as_floats(value.data) + row * value.row_stride;
    if (value.column_stride == 1) {
      std::copy_n(from, tile_.size.columns, out + row * columns);
    } else {
      std::fill_n(out + row * columns, columns, *from);
    }
  }
  return at(scratch);
}

void Machine::start_reduction(const Instruction& instruction, size_t first, size_t count) {
  if (is_float_lane(instruction.dtype)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double start = instruction.opcode == Opcode::kReduceMax   ? -kInfinity
                         : instruction.opcode == Opcode::kReduceMin ? kInfinity
                                                                    : 0.0;
    std::fill_n(memory_.totals.begin() + static_cast<std::ptrdiff_t>(first), count, start);
    return;
  }
  if (memory_.accumulators.size() < first + count) memory_.accumulators.resize(first + count);
  for (size_t i = 0; i < count; ++i) memory_.accumulators[first + i].reset(instruction);
}

void Machine::reduce(const Instruction& instruction, size_t first) {
  if (is_float_lane(instruction.dtype)) {
    return reduce_float(instruction.opcode, floats(instruction.operands[0]), tile_.size, &memory_.totals[first]);
  }
  const char* const values = value_of(instruction.operands[0]).data;
  const int64_t row_bytes = dense_columns() * lane_bytes(lane_of(instruction.dtype));
  for (int64_t row = 0; row < tile_.size.rows; ++row) {
    memory_.accumulators[first + static_cast<size_t>(row)].add(values + row * row_bytes, tile_.size.columns);
  }
}

Machine::Value Machine::reduced(const Step& step, size_t first, int64_t row_length) {
  const Instruction& instruction = code(step.instruction);
  char* const out = at(step.slot);
  if (is_float_lane(instruction.dtype)) {
    const bool mean = instruction.opcode == Opcode::kReduceMean;
    for (int64_t row = 0; row < tile_.size.rows; ++row) {
      const double total = memory_.totals[first + static_cast<size_t>(row)];
      as_floats(out)[row] = static_cast<float>(mean ? total / static_cast<double>(row_length) : total);
    }
    return {out, 1, 0};
  }
  const int64_t row_bytes = dense_columns() * lane_bytes(lane_of(instruction.dtype));
  for (int64_t row = 0; row < tile_.size.rows; ++row) {
    memory_.accumulators[first + static_cast<size_t>(row)].finish(row_length, dense_columns(), out + row * row_bytes);
  }
  return {out};
}

}  // namespace qx::tile
