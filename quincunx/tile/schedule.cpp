#include "quincunx/tile/schedule.h"

#include <algorithm>
#include <utility>

namespace qx::tile {
namespace {

bool is_float_lane(DType dtype) { return is_floating_point(dtype) && dtype != DType::kFloat64; }

// Gives registers to the results of a pass; a register is free again after the last read of what it holds.
class SlotAllocator {
 public:
  SlotAllocator(const Program& program, int32_t num_reserved) : program_(program), num_slots_(num_reserved) {}

  std::vector<Step> allocate(const std::vector<int32_t>& order, const std::vector<int32_t>& reserved) {
    std::vector<size_t> last_read(program_.code.size(), 0);
    for (size_t i = 0; i < order.size(); ++i) {
      for_each_origin(order[i], [&](int32_t origin) { last_read[static_cast<size_t>(origin)] = i; });
    }
    std::vector<int32_t> slot_of(program_.code.size(), -1);
    std::vector<Step> steps;
    for (size_t i = 0; i < order.size(); ++i) {
      const int32_t number = order[i];
      const Instruction& instruction = program_.code[static_cast<size_t>(number)];
      const int32_t kept = reserved[static_cast<size_t>(number)];
      const bool has_slot = instruction.opcode != Opcode::kStore && !is_alias(program_, instruction);
      int32_t slot = kept;
      if (has_slot && kept < 0) slot = slot_of[static_cast<size_t>(number)] = take();
      steps.push_back({number, slot});
      // Only now: a result must not overwrite an operand, which may be read more than once.
      for_each_origin(number, [&](int32_t origin) {
        int32_t& read = slot_of[static_cast<size_t>(origin)];
        if (read < 0 || last_read[static_cast<size_t>(origin)] != i) return;
        free_.push_back(std::exchange(read, -1));
      });
    }
    return steps;
  }

  int32_t num_slots() const { return num_slots_; }

 private:
  template <typename Visit>
  void for_each_origin(int32_t number, const Visit& visit) const {
    const Instruction& instruction = program_.code[static_cast<size_t>(number)];
    for (int i = 0; i < num_operands(instruction.opcode); ++i) visit(origin_of(program_, instruction.operands[i]));
  }

  int32_t take() {
    if (free_.empty()) return num_slots_++;
    const int32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  const Program& program_;
  int32_t num_slots_;
  std::vector<int32_t> free_;
};

// The instructions that `is_target` names and what they need, in order. Reductions that are no targets are known.
template <typename IsTarget>
std::vector<int32_t> needed_for(const Program& program, bool knows_reductions, const IsTarget& is_target) {
  std::vector<bool> needed(program.code.size(), false);
  std::vector<int32_t> order;
  for (size_t i = program.code.size(); i-- > 0;) {
    const Instruction& instruction = program.code[i];
    const bool known = knows_reductions && is_reduction(instruction.opcode);
    if (!is_target(i) && (!needed[i] || known)) continue;
    order.push_back(static_cast<int32_t>(i));
    for (int k = 0; k < num_operands(instruction.opcode); ++k) {
      needed[static_cast<size_t>(instruction.operands[k])] = true;
    }
  }
  std::ranges::reverse(order);
  return order;
}

}  // namespace

bool is_alias(const Program& program, const Instruction& instruction) {
  if (instruction.opcode != Opcode::kCast) return false;
  const DType from = result_dtype(program.code[static_cast<size_t>(instruction.operands[0])]);
  // Values of the narrow floats are kept in f32, and only a cast rounds them.
  const bool rounds = instruction.dtype == DType::kBFloat16 || instruction.dtype == DType::kFloat16;
  return (from == instruction.dtype && !rounds) || (instruction.dtype == DType::kFloat32 && is_float_lane(from));
}

int32_t origin_of(const Program& program, int32_t number) {
  while (is_alias(program, program.code[static_cast<size_t>(number)])) {
    number = program.code[static_cast<size_t>(number)].operands[0];
  }
  return number;
}

Schedule schedule_at_once(const Program& program) {
  const auto is_store = [&](size_t i) { return program.code[i].opcode == Opcode::kStore; };
  SlotAllocator allocator(program, 0);
  Schedule schedule;
  schedule.passes.push_back(
      allocator.allocate(needed_for(program, false, is_store), std::vector<int32_t>(program.code.size(), -1)));
  schedule.num_slots = allocator.num_slots();
  return schedule;
}

Schedule schedule_by_passes(const Program& program) {
  const std::vector<int> level = levels(program);
  const int last = level.empty() ? 0 : *std::ranges::max_element(level);
  std::vector<int32_t> reserved(program.code.size(), -1);
  int32_t num_reserved = 0;
  for (size_t i = 0; i < reserved.size(); ++i) {
    if (is_reduction(program.code[i].opcode)) reserved[i] = num_reserved++;
  }
  SlotAllocator allocator(program, num_reserved);
  Schedule schedule;
  for (int pass = 0; pass <= last; ++pass) {
    const auto is_target = [&](size_t i) {
      if (pass == last) return program.code[i].opcode == Opcode::kStore;
      return is_reduction(program.code[i].opcode) && level[i] == pass + 1;
    };
    schedule.passes.push_back(allocator.allocate(needed_for(program, true, is_target), reserved));
  }
  schedule.num_slots = allocator.num_slots();
  return schedule;
}

}  // namespace qx::tile
