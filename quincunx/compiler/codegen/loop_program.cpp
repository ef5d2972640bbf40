#include "quincunx/compiler/codegen/loop_program.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace qx::compiler {
namespace {

struct OpcodeInfo {
  std::string_view name;
  int num_operands;
};
constexpr OpcodeInfo kOpcodes[] = {
    {"load", 0},       {"store", 1},     {"constant", 0},   {"scalar", 0},     {"cast", 1},        {"neg", 1},
    {"abs", 1},        {"sign", 1},      {"exp", 1},        {"expm1", 1},      {"log", 1},         {"log1p", 1},
    {"sqrt", 1},       {"rsqrt", 1},     {"reciprocal", 1}, {"tanh", 1},       {"erf", 1},         {"sigmoid", 1},
    {"sin", 1},        {"cos", 1},       {"floor", 1},      {"ceil", 1},       {"round", 1},       {"trunc", 1},
    {"not", 1},        {"isnan", 1},     {"add", 2},        {"sub", 2},        {"mul", 2},         {"div", 2},
    {"floordiv", 2},   {"remainder", 2}, {"pow", 2},        {"max", 2},        {"min", 2},         {"and", 2},
    {"or", 2},         {"xor", 2},       {"eq", 2},         {"ne", 2},         {"lt", 2},          {"le", 2},
    {"gt", 2},         {"ge", 2},        {"select", 3},     {"reduce_sum", 1}, {"reduce_prod", 1}, {"reduce_max", 1},
    {"reduce_min", 1},
};
static_assert(std::size(kOpcodes) == static_cast<size_t>(Opcode::kReduceMin) + 1);

std::string text(const graph::Dim& dim) {
  if (dim.is_known()) return std::to_string(dim.value);
  return std::to_string(dim.multiplier) + "*s" + std::to_string(dim.symbol) + "+" + std::to_string(dim.value);
}

std::string text(const View& view) {
  std::string line = "tensor " + std::to_string(view.tensor);
  for (const ViewDim& dim : view.dims) {
    line += " [";
    for (const int32_t axis : dim.axes) line += "a" + std::to_string(axis) + " ";
    line += "* " + std::to_string(dim.step) + " + " + text(dim.start) + "]";
  }
  return line;
}

std::string text(const graph::TensorType& type) {
  std::string line(dtype_name(type.dtype));
  for (const graph::Dim& dim : type.shape) line += " " + text(dim);
  return line;
}

bool isComparison(Opcode opcode) {
  return (opcode >= Opcode::kEq && opcode <= Opcode::kGe) || opcode == Opcode::kIsNan;
}

bool hasReducedAxis(const LoopProgram& program, const View& view) {
  return std::ranges::any_of(view.dims, [&](const ViewDim& dim) {
    return std::ranges::any_of(dim.axes, [&](int32_t axis) { return program.axes[axis].reduced; });
  });
}

// An output has a place for each point of the kept axes, and of the reduced axes all or none.
bool isWholeOutput(const LoopProgram& program, const View& view) {
  int64_t kept = std::ranges::count(program.axes, false, &Axis::reduced);
  int64_t reduced = std::ranges::count(program.axes, true, &Axis::reduced);
  const int64_t num_reduced = reduced;
  for (const ViewDim& dim : view.dims) {
    for (const int32_t axis : dim.axes) --(program.axes[axis].reduced ? reduced : kept);
  }
  return kept == 0 && (reduced == 0 || reduced == num_reduced);
}

Status malformed(size_t number, const std::string& what) {
  return internal_error("loop program: instruction " + std::to_string(number) + ": " + what);
}

Status verifyViews(const LoopProgram& program) {
  const auto num_tensors = static_cast<int32_t>(program.inputs.size() + program.outputs.size());
  const auto num_axes = static_cast<int32_t>(program.axes.size());
  if (num_axes > LoopProgram::kMaxAxes) return internal_error("loop program: too many axes");
  if (program.views.size() > LoopProgram::kMaxViews) return internal_error("loop program: too many views");
  for (const View& view : program.views) {
    if (view.tensor < 0 || view.tensor >= num_tensors) return internal_error("loop program: a view of no tensor");
    if (view.dims.size() != program.tensorType(view.tensor).shape.size()) {
      return internal_error("loop program: a view's rank is not its tensor's");
    }
    std::array<bool, LoopProgram::kMaxAxes> seen{};
    for (const ViewDim& dim : view.dims) {
      for (const int32_t axis : dim.axes) {
        if (axis < 0 || axis >= num_axes || seen[axis]) return internal_error("loop program: a view's axis is wrong");
        seen[axis] = true;
      }
    }
  }
  return ok_status();
}

Status verifyTypes(const LoopProgram& program, size_t number, const Instruction& code) {
  const auto type = [&](int operand) { return program.code[code.operands[operand]].dtype; };
  const Opcode opcode = code.opcode;
  if (isComparison(opcode)) {
    if (code.dtype != DType::kBool) return malformed(number, "a comparison gives bool");
    return opcode == Opcode::kIsNan || type(0) == type(1) ? ok_status() : malformed(number, "operands differ in type");
  }
  if (opcode == Opcode::kSelect) {
    const bool right = type(0) == DType::kBool && type(1) == code.dtype && type(2) == code.dtype;
    return right ? ok_status() : malformed(number, "select takes bool and two values of its type");
  }
  if (opcode == Opcode::kCast) return ok_status();
  for (int i = 0; i < numOperands(opcode); ++i) {
    if (type(i) != code.dtype) return malformed(number, "operands differ in type");
  }
  return ok_status();
}

}  // namespace

std::string_view opcodeName(Opcode opcode) { return kOpcodes[static_cast<size_t>(opcode)].name; }
int numOperands(Opcode opcode) { return kOpcodes[static_cast<size_t>(opcode)].num_operands; }
bool isReduction(Opcode opcode) { return opcode >= Opcode::kReduceSum; }

const graph::TensorType& LoopProgram::tensorType(int32_t tensor) const {
  const auto num_inputs = static_cast<int32_t>(inputs.size());
  return tensor < num_inputs ? inputs[tensor] : outputs[tensor - num_inputs];
}

int32_t LoopProgram::add(Opcode opcode, DType dtype, int32_t a, int32_t b, int32_t c) {
  code.push_back({opcode, dtype, {a, b, c}, 0, 0.0});
  return static_cast<int32_t>(code.size()) - 1;
}

int32_t LoopProgram::constant(DType dtype, double value) {
  const int32_t result = add(Opcode::kConstant, dtype);
  if (is_floating_point(dtype)) {
    code.back().number = value;
  } else {
    code.back().index = static_cast<int64_t>(value);
  }
  return result;
}

Status verify(const LoopProgram& program) {
  QX_RETURN_IF_ERROR(verifyViews(program));
  const auto num_inputs = static_cast<int32_t>(program.inputs.size());
  for (size_t number = 0; number < program.code.size(); ++number) {
    const Instruction& code = program.code[number];
    for (int i = 0; i < numOperands(code.opcode); ++i) {
      const int32_t operand = code.operands[i];
      if (operand < 0 || operand >= static_cast<int32_t>(number) || program.code[operand].opcode == Opcode::kStore) {
        return malformed(number, "an operand is not a value before it");
      }
    }
    if (code.opcode == Opcode::kLoad || code.opcode == Opcode::kStore) {
      if (code.index < 0 || code.index >= static_cast<int64_t>(program.views.size())) {
        return malformed(number, "no such view");
      }
      const View& view = program.views[code.index];
      if (program.tensorType(view.tensor).dtype != code.dtype) return malformed(number, "not the tensor's type");
      if ((view.tensor < num_inputs) != (code.opcode == Opcode::kLoad)) {
        return malformed(number, "inputs are loaded and outputs are stored");
      }
    }
    if (code.opcode == Opcode::kScalar && code.index >= static_cast<int64_t>(program.scalars.size())) {
      return malformed(number, "no such scalar");
    }
    QX_RETURN_IF_ERROR(verifyTypes(program, number, code));
  }
  const LoopLevels levels = analyseLevels(program);
  for (size_t number = 0; number < program.code.size(); ++number) {
    const Instruction& code = program.code[number];
    if (code.opcode != Opcode::kStore) continue;
    if (!levels.row[code.operands[0]] && !hasReducedAxis(program, program.views[code.index])) {
      return malformed(number, "an element of the reduced axes has no place in this output");
    }
    if (!isWholeOutput(program, program.views[code.index]))
      return malformed(number, "points share places in this output");
  }
  return ok_status();
}

std::string to_string(const LoopProgram& program) {
  std::string lines;
  for (const auto& type : program.inputs) lines += "input " + text(type) + "\n";
  for (const auto& type : program.outputs) lines += "output " + text(type) + "\n";
  for (const Axis& axis : program.axes) lines += "axis " + text(axis.size) + (axis.reduced ? " reduced\n" : "\n");
  for (const View& view : program.views) lines += "view " + text(view) + "\n";
  for (const auto& scalar : program.scalars) {
    lines += "scalar";
    for (const graph::Dim& dim : scalar) lines += " " + text(dim);
    lines += "\n";
  }
  int number = 0;
  for (const Instruction& code : program.code) {
    lines += "%" + std::to_string(number++) + " = " + std::string(opcodeName(code.opcode)) + " " +
             std::string(dtype_name(code.dtype));
    for (int i = 0; i < numOperands(code.opcode); ++i) lines += " %" + std::to_string(code.operands[i]);
    if (code.opcode == Opcode::kConstant && is_floating_point(code.dtype)) {
      char exact[40];
      std::snprintf(exact, sizeof(exact), " %a", code.number);
      lines += exact;
    } else if (numOperands(code.opcode) == 0 || code.opcode == Opcode::kStore) {
      lines += " #" + std::to_string(code.index);
    }
    lines += "\n";
  }
  return lines;
}

int64_t evaluate(const graph::Dim& dim, const int64_t* symbols) {
  return dim.is_known() ? dim.value : dim.multiplier * symbols[dim.symbol] + dim.value;
}

LoopLevels analyseLevels(const LoopProgram& program) {
  LoopLevels levels;
  levels.row.resize(program.code.size());
  levels.level.resize(program.code.size());
  for (size_t number = 0; number < program.code.size(); ++number) {
    const Instruction& code = program.code[number];
    bool row = true;
    int level = 0;
    for (int i = 0; i < numOperands(code.opcode); ++i) {
      row = row && levels.row[code.operands[i]];
      level = std::max(level, levels.level[code.operands[i]]);
    }
    if (code.opcode == Opcode::kLoad || code.opcode == Opcode::kStore) {
      row = row && !hasReducedAxis(program, program.views[code.index]);
    }
    if (isReduction(code.opcode)) {
      row = true;
      ++level;
    }
    levels.row[number] = row;
    levels.level[number] = level;
    levels.num_levels = std::max(levels.num_levels, level + 1);
  }
  return levels;
}

}  // namespace qx::compiler
