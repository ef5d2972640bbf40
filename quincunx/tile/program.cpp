#include "quincunx/tile/program.h"

#include <algorithm>

#include "quincunx/tile/opcodes.h"

namespace qx::tile {
namespace {

bool is_comparison(Opcode opcode) { return opcode >= Opcode::kEq && opcode <= Opcode::kGe; }

Status error(const std::string& where, const std::string& message) {
  return invalid_argument("tile program, " + where + ": " + message);
}

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program) {}

  Status run() {
    if (program_.num_axes < 0 || program_.num_axes > Program::kMaxAxes) {
      return error("axes",
                   "expected 0 to " + std::to_string(Program::kMaxAxes) + ", got " + std::to_string(program_.num_axes));
    }
    if (program_.inputs.size() + program_.outputs.size() > Program::kMaxTensors ||
        program_.code.size() > Program::kMaxInstructions) {
      return error("size", "expected at most " + std::to_string(Program::kMaxTensors) + " tensors and " +
                               std::to_string(Program::kMaxInstructions) + " instructions");
    }
    for (const Tensor& tensor : program_.inputs) QX_RETURN_IF_ERROR(check_tensor(tensor, "input"));
    for (const Tensor& tensor : program_.outputs) QX_RETURN_IF_ERROR(check_tensor(tensor, "output"));
    for (size_t i = 0; i < program_.code.size(); ++i) QX_RETURN_IF_ERROR(check_instruction(i));
    return check_stores();
  }

 private:
  Status check_tensor(const Tensor& tensor, const std::string& what) const {
    if (!is_supported(tensor.dtype)) {
      return error(what, "dtype " + std::string(dtype_name(tensor.dtype)) + " is not one of tile programs");
    }
    std::vector<bool> used(Program::kMaxAxes, false);
    for (const int32_t axis : tensor.axes) {
      if (axis < 0 || axis >= program_.num_axes || used[static_cast<size_t>(axis)]) {
        return error(what, "expected different axes below " + std::to_string(program_.num_axes) + ", got " +
                               std::to_string(axis));
      }
      used[static_cast<size_t>(axis)] = true;
    }
    return ok_status();
  }

  Status check_instruction(size_t number) const {
    const Instruction& instruction = program_.code[number];
    if (static_cast<size_t>(instruction.opcode) >= kOpcodes.size()) return error("code", "expected an opcode");
    const OpcodeInfo& opcode = info(instruction.opcode);
    const std::string where = "%" + std::to_string(number) + " " + std::string(opcode.name);
    if (!is_supported(instruction.dtype)) {
      return error(where, "dtype " + std::string(dtype_name(instruction.dtype)) + " is not one of tile programs");
    }
    for (int i = 0; i < opcode.num_operands; ++i) {
      const int32_t operand = instruction.operands[i];
      if (operand < 0 || static_cast<size_t>(operand) >= number ||
          program_.code[static_cast<size_t>(operand)].opcode == Opcode::kStore) {
        return error(where, "expected values before it, got %" + std::to_string(operand));
      }
      QX_RETURN_IF_ERROR(check_operand(instruction, opcode, i, where));
    }
    if (is_reduction(instruction.opcode) && program_.num_axes == 0) return error(where, "there is no axis to reduce");
    return check_index(instruction, where);
  }

  Status check_operand(const Instruction& instruction, const OpcodeInfo& opcode, int position,
                       const std::string& where) const {
    const DType given = result_dtype(program_.code[static_cast<size_t>(instruction.operands[position])]);
    if (opcode.rule == OperandRule::kCast) return ok_status();
    const bool condition = opcode.rule == OperandRule::kSelect && position == 0;
    const DType wanted = condition || opcode.rule == OperandRule::kBool ? DType::kBool : instruction.dtype;
    if (given != wanted) {
      return error(where, "expected an operand of " + std::string(dtype_name(wanted)) + ", got " +
                              std::string(dtype_name(given)));
    }
    if (opcode.rule == OperandRule::kFloat && !is_floating_point(given)) {
      return error(where, "expected an operand of a floating-point dtype, got " + std::string(dtype_name(given)));
    }
    return ok_status();
  }

  Status check_index(const Instruction& instruction, const std::string& where) const {
    const bool load = instruction.opcode == Opcode::kLoad;
    if (!load && instruction.opcode != Opcode::kStore) return ok_status();
    const auto& tensors = load ? program_.inputs : program_.outputs;
    if (instruction.index < 0 || static_cast<size_t>(instruction.index) >= tensors.size()) {
      return error(where, "expected a tensor below " + std::to_string(tensors.size()) + ", got " +
                              std::to_string(instruction.index));
    }
    const DType dtype = tensors[static_cast<size_t>(instruction.index)].dtype;
    if (dtype == instruction.dtype) return ok_status();
    return error(where, "expected the tensor's dtype " + std::string(dtype_name(dtype)));
  }

  Status check_stores() const {
    std::vector<int> stores(program_.outputs.size(), 0);
    const std::vector<bool> constant = row_constants(program_);
    for (const Instruction& instruction : program_.code) {
      if (instruction.opcode != Opcode::kStore) continue;
      const auto index = static_cast<size_t>(instruction.index);
      ++stores[index];
      const Tensor& output = program_.outputs[index];
      const bool has_last = std::ranges::find(output.axes, program_.num_axes - 1) != output.axes.end();
      const int missing = program_.num_axes - static_cast<int>(output.axes.size());
      const bool row_value = constant[static_cast<size_t>(instruction.operands[0])];
      if (missing == 0 || (missing == 1 && !has_last && row_value)) continue;
      return error("output " + std::to_string(index),
                   "expected all axes, or all but the last for a value that is the same all along a row");
    }
    for (size_t i = 0; i < stores.size(); ++i) {
      if (stores[i] != 1) {
        return error("output " + std::to_string(i), "expected one store, got " + std::to_string(stores[i]));
      }
    }
    return ok_status();
  }

  const Program& program_;
};

}  // namespace

std::string_view opcode_name(Opcode opcode) { return info(opcode).name; }
int num_operands(Opcode opcode) { return info(opcode).num_operands; }
bool is_reduction(Opcode opcode) { return opcode >= Opcode::kReduceSum; }

bool is_supported(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64: return true;
    default: return false;
  }
}

DType result_dtype(const Instruction& instruction) {
  const bool gives_bool = is_comparison(instruction.opcode) || instruction.opcode == Opcode::kIsNan;
  return gives_bool ? DType::kBool : instruction.dtype;
}

Status verify(const Program& program) { return Verifier(program).run(); }

std::vector<int> levels(const Program& program) {
  std::vector<int> result;
  for (const Instruction& instruction : program.code) {
    int level = 0;
    for (int i = 0; i < num_operands(instruction.opcode); ++i) {
      level = std::max(level, result[static_cast<size_t>(instruction.operands[i])]);
    }
    result.push_back(level + (is_reduction(instruction.opcode) ? 1 : 0));
  }
  return result;
}

std::vector<bool> row_constants(const Program& program) {
  std::vector<bool> result;
  for (const Instruction& instruction : program.code) {
    bool constant = true;
    if (instruction.opcode == Opcode::kLoad) {
      const Tensor& input = program.inputs[static_cast<size_t>(instruction.index)];
      constant = std::ranges::find(input.axes, program.num_axes - 1) == input.axes.end();
    } else if (!is_reduction(instruction.opcode)) {
      for (int i = 0; i < num_operands(instruction.opcode); ++i) {
        constant = constant && result[static_cast<size_t>(instruction.operands[i])];
      }
    }
    result.push_back(constant);
  }
  return result;
}

}  // namespace qx::tile
