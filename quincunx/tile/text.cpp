#include <array>
#include <charconv>
#include <cmath>

#include "quincunx/tile/opcodes.h"
#include "quincunx/tile/program.h"

namespace qx::tile {
namespace {

constexpr std::string_view kVersion = "tile 1";

std::string number_text(double number) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  return {buffer.data(), end};
}

std::string tensor_text(std::string_view what, const Tensor& tensor) {
  std::string text = std::string(what) + " " + std::string(dtype_name(tensor.dtype)) + " [";
  for (size_t i = 0; i < tensor.axes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(tensor.axes[i]);
  return text + "]\n";
}

std::string instruction_text(const Instruction& instruction, size_t number) {
  std::string text = "%" + std::to_string(number) + " = " + std::string(opcode_name(instruction.opcode)) + " " +
                     std::string(dtype_name(instruction.dtype));
  for (int i = 0; i < num_operands(instruction.opcode); ++i) text += " %" + std::to_string(instruction.operands[i]);
  const bool indexed = instruction.opcode == Opcode::kLoad || instruction.opcode == Opcode::kStore;
  if (indexed) text += " " + std::to_string(instruction.index);
  if (instruction.opcode == Opcode::kConstant) text += " " + number_text(instruction.number);
  return text + "\n";
}

// Words of one line; a word that is missing or wrong leaves it failed.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) {}

  bool ok() const { return ok_ && rest_.empty(); }

  std::string_view word() {
    const size_t end = rest_.find(' ');
    const std::string_view found = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ok_ = ok_ && !found.empty();
    return found;
  }
  void expect(std::string_view text) { ok_ = word() == text && ok_; }
  template <typename T>
  T number(std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    ok_ = ok_ && error == std::errc() && end == text.data() + text.size();
    return value;
  }
  template <typename T>
  T number() {
    return number<T>(word());
  }
  int32_t operand() {
    const std::string_view text = word();
    ok_ = ok_ && text.starts_with('%');
    return number<int32_t>(text.empty() ? text : text.substr(1));
  }
  DType dtype() {
    const Result<DType> found = dtype_from_name(word());
    ok_ = ok_ && found.ok();
    return found.ok() ? *found : DType::kFloat32;
  }
  Opcode opcode() {
    const std::string_view name = word();
    for (const OpcodeInfo& known : kOpcodes) {
      if (known.name == name) return known.opcode;
    }
    ok_ = false;
    return Opcode::kConstant;
  }
  // "[0, 1]"
  std::vector<int32_t> axes() {
    std::vector<int32_t> axes;
    if (rest_ == "[]") {
      rest_ = {};
      return axes;
    }
    ok_ = ok_ && rest_.starts_with('[') && rest_.ends_with(']');
    if (!ok_) return axes;
    rest_ = rest_.substr(1, rest_.size() - 2);
    while (ok_ && !rest_.empty()) {
      std::string_view text = word();
      if (!rest_.empty()) {
        ok_ = ok_ && text.ends_with(',');
        text = text.substr(0, text.size() - 1);
      }
      axes.push_back(number<int32_t>(text));
    }
    return axes;
  }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

Instruction parse_instruction(Line& line, size_t number) {
  Instruction instruction;
  line.expect("%" + std::to_string(number));
  line.expect("=");
  instruction.opcode = line.opcode();
  instruction.dtype = line.dtype();
  for (int i = 0; i < num_operands(instruction.opcode); ++i) instruction.operands[i] = line.operand();
  const bool indexed = instruction.opcode == Opcode::kLoad || instruction.opcode == Opcode::kStore;
  if (indexed) instruction.index = line.number<int32_t>();
  if (instruction.opcode == Opcode::kConstant) instruction.number = line.number<double>();
  return instruction;
}

void parse_line(std::string_view text, size_t row, Program& program, bool& ok) {
  Line line(text);
  if (row == 0) {
    ok = text == kVersion;
    return;
  }
  if (row == 1) {
    line.expect("axes");
    program.num_axes = line.number<int32_t>();
  } else if (text.starts_with('%')) {
    program.code.push_back(parse_instruction(line, program.code.size()));
  } else {
    const bool input = text.starts_with("input ");
    line.expect(input ? "input" : "output");
    Tensor tensor;
    tensor.dtype = line.dtype();
    tensor.axes = line.axes();
    // In the order in which to_text() writes them.
    ok = program.code.empty() && (!input || program.outputs.empty());
    (input ? program.inputs : program.outputs).push_back(std::move(tensor));
  }
  ok = ok && line.ok();
}

}  // namespace

std::string to_text(const Program& program) {
  std::string text = std::string(kVersion) + "\naxes " + std::to_string(program.num_axes) + "\n";
  for (const Tensor& tensor : program.inputs) text += tensor_text("input", tensor);
  for (const Tensor& tensor : program.outputs) text += tensor_text("output", tensor);
  for (size_t i = 0; i < program.code.size(); ++i) text += instruction_text(program.code[i], i);
  return text;
}

Result<Program> parse(std::string_view text) {
  Program program;
  bool ok = true;
  size_t row = 0;
  for (; !text.empty(); ++row) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    parse_line(line, row, program, ok);
    if (!ok || end == std::string_view::npos) {
      return invalid_argument("tile program, line " + std::to_string(row + 1) + ": cannot read \"" +
                              std::string(line.substr(0, 100)) + "\"");
    }
    text.remove_prefix(end + 1);
  }
  if (row < 2) return invalid_argument("tile program: expected text that starts with \"tile 1\" and its axes");
  QX_RETURN_IF_ERROR(verify(program));
  return program;
}

}  // namespace qx::tile
