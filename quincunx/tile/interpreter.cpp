#include "quincunx/tile/interpreter.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "quincunx/parallel/parallel_for.h"
#include "quincunx/tile/binding.h"
#include "quincunx/tile/block.h"

namespace qx::tile {
namespace {

// A thread is given at least so many elements: below, waking it costs more than it does.
constexpr int64_t kGrain = 16 * 1024;

// What each pass over a row computes: the reductions of the next level and what they need, in the last pass the stores
// and what they need. Reductions of earlier levels are known.
std::vector<std::vector<size_t>> plan_passes(const Program& program) {
  const std::vector<int> level = levels(program);
  const int last = level.empty() ? 0 : *std::ranges::max_element(level);
  std::vector<std::vector<size_t>> passes;
  for (int pass = 0; pass <= last; ++pass) {
    std::vector<bool> needed(program.code.size(), false);
    std::vector<size_t> order;
    for (size_t i = program.code.size(); i-- > 0;) {
      const Instruction& instruction = program.code[i];
      const bool reduction = is_reduction(instruction.opcode);
      const bool target = pass == last ? instruction.opcode == Opcode::kStore : reduction && level[i] == pass + 1;
      if (!target && (!needed[i] || reduction)) continue;
      order.push_back(i);
      for (int k = 0; k < num_operands(instruction.opcode); ++k) {
        needed[static_cast<size_t>(instruction.operands[k])] = true;
      }
    }
    std::ranges::reverse(order);
    passes.push_back(std::move(order));
  }
  return passes;
}

// One thread's registers.
class Machine {
 public:
  Machine(const Program& program, const Binding& binding, const std::vector<std::vector<size_t>>& passes)
      : program_(program),
        binding_(binding),
        passes_(passes),
        row_constant_(row_constants(program)),
        registers_(program.code.size() * kRegisterBytes / sizeof(std::max_align_t) + 1),
        accumulators_(program.code.size()),
        input_offsets_(binding.inputs.size()),
        output_offsets_(binding.outputs.size()) {}

  // Elements [first, first + count) of a row of a program without reductions.
  void run_piece(int64_t row, int64_t first, int64_t count) {
    locate(row);
    for (const size_t i : passes_.back()) execute(i, first, count);
  }

  void run_row(int64_t row) {
    locate(row);
    const int64_t length = binding_.row_length();
    for (const std::vector<size_t>& pass : passes_) {
      for (const size_t i : pass) {
        if (is_reduction(program_.code[i].opcode)) accumulators_[i].reset(program_.code[i]);
      }
      int64_t first = 0;
      do {  // an empty row still gives its sums
        const int64_t count = std::min(kBlock, length - first);
        for (const size_t i : pass) execute(i, first, count);
        first += kBlock;
      } while (first < length);
      for (const size_t i : pass) {
        if (is_reduction(program_.code[i].opcode)) accumulators_[i].finish(length, kBlock, at(static_cast<int32_t>(i)));
      }
    }
  }

 private:
  static constexpr size_t kRegisterBytes = static_cast<size_t>(kBlock) * sizeof(double);

  void* at(int32_t number) {
    return reinterpret_cast<std::byte*>(registers_.data()) + static_cast<size_t>(number) * kRegisterBytes;
  }
  const void* operand(const Instruction& instruction, int position) {
    return instruction.operands[position] < 0 ? nullptr : at(instruction.operands[position]);
  }
  DType operand_dtype(const Instruction& instruction) const {
    return instruction.operands[0] < 0 ? instruction.dtype
                                       : result_dtype(program_.code[static_cast<size_t>(instruction.operands[0])]);
  }

  void locate(int64_t row) {
    std::ranges::fill(input_offsets_, 0);
    std::ranges::fill(output_offsets_, 0);
    for (size_t axis = binding_.sizes.size() - 1; axis-- > 0;) {
      const int64_t index = row % binding_.sizes[axis];
      row /= binding_.sizes[axis];
      for (size_t i = 0; i < input_offsets_.size(); ++i) input_offsets_[i] += index * binding_.inputs[i].strides[axis];
      for (size_t i = 0; i < output_offsets_.size(); ++i) {
        output_offsets_[i] += index * binding_.outputs[i].strides[axis];
      }
    }
  }

  void execute(size_t number, int64_t first, int64_t count) {
    const Instruction& instruction = program_.code[number];
    void* out = at(static_cast<int32_t>(number));
    if (is_reduction(instruction.opcode)) return accumulators_[number].add(operand(instruction, 0), count);
    if (instruction.opcode == Opcode::kStore) return store(instruction, first, count);
    if (row_constant_[number]) count = std::max<int64_t>(count, 1);
    switch (instruction.opcode) {
      case Opcode::kLoad: return load(instruction, first, count, out);
      case Opcode::kConstant: return fill_block(instruction.dtype, instruction.number, count, out);
      case Opcode::kCast:
        return cast_block(operand_dtype(instruction), instruction.dtype, operand(instruction, 0), count, out);
      default:
        return compute_block(instruction, operand_dtype(instruction), operand(instruction, 0), operand(instruction, 1),
                             operand(instruction, 2), count, out);
    }
  }

  void load(const Instruction& instruction, int64_t first, int64_t count, void* out) {
    if (count == 0) return;  // an empty tensor has no address
    const auto index = static_cast<size_t>(instruction.index);
    const BoundTensor& tensor = binding_.inputs[index];
    const int64_t stride = tensor.strides.back();
    const int64_t offset = input_offsets_[index] + first * stride;
    load_block(tensor.dtype, tensor.data + offset * dtype_size_bytes(tensor.dtype), stride, count, out);
  }

  void store(const Instruction& instruction, int64_t first, int64_t count) {
    const auto index = static_cast<size_t>(instruction.index);
    const BoundTensor& tensor = binding_.outputs[index];
    const bool one_a_row = program_.outputs[index].axes.size() < static_cast<size_t>(program_.num_axes);
    if (one_a_row ? first > 0 : count == 0) return;
    const int64_t stride = tensor.strides.back();
    const int64_t offset = output_offsets_[index] + first * stride;
    store_block(tensor.dtype, operand(instruction, 0), one_a_row ? 1 : count,
                tensor.data + offset * dtype_size_bytes(tensor.dtype), one_a_row ? 1 : stride);
  }

  const Program& program_;
  const Binding& binding_;
  const std::vector<std::vector<size_t>>& passes_;
  const std::vector<bool> row_constant_;
  std::vector<std::max_align_t> registers_;
  std::vector<Accumulator> accumulators_;
  std::vector<int64_t> input_offsets_;
  std::vector<int64_t> output_offsets_;
};

bool needs_elements(Opcode opcode) { return opcode == Opcode::kReduceMax || opcode == Opcode::kReduceMin; }

}  // namespace

Status run(const Program& program, std::span<const TensorView> inputs, std::span<const TensorView> outputs) {
  QX_RETURN_IF_ERROR(verify(program));
  QX_ASSIGN_OR_RETURN(const Binding binding, bind(program, inputs, outputs));
  const int64_t length = binding.row_length();
  const int64_t rows = binding.num_rows();
  if (rows == 0) return ok_status();
  for (const Instruction& instruction : program.code) {
    if (length == 0 && needs_elements(instruction.opcode)) {
      return invalid_argument("inputs: expected rows of at least one element for " +
                              std::string(opcode_name(instruction.opcode)) + ", got none");
    }
  }
  const std::vector<std::vector<size_t>> passes = plan_passes(program);
  const bool whole_rows = passes.size() > 1 || length == 0;
  const int64_t pieces = whole_rows ? 1 : (length + kBlock - 1) / kBlock;
  const int64_t piece = std::max<int64_t>(1, std::min(length, whole_rows ? length : kBlock));
  parallel_for(0, rows * pieces, std::max<int64_t>(1, kGrain / piece), [&](int64_t begin, int64_t end) {
    Machine machine(program, binding, passes);
    for (int64_t task = begin; task < end; ++task) {
      if (whole_rows) {
        machine.run_row(task);
      } else {
        const int64_t first = task % pieces * kBlock;
        machine.run_piece(task / pieces, first, std::min(kBlock, length - first));
      }
    }
  });
  return ok_status();
}

}  // namespace qx::tile
