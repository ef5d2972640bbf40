// Random programs against a reading of the definition, one element after another, on every instruction set.
#include "quincunx/tile/machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/dispatch_targets.h"
#include "quincunx/parallel/parallel_for.h"
#include "quincunx/tile/interpreter.h"

namespace qx::tile {
namespace {

using Shape = std::vector<int64_t>;

// The values of every instruction, for every point. Operations that round are done in f32 one at a time.
class Definition {
 public:
  Definition(const Program& program, const Shape& sizes) : program_(program), sizes_(sizes) {
    for (const int64_t size : sizes) num_points_ *= size;
  }

  std::vector<std::vector<double>> run(const std::vector<std::vector<double>>& inputs,
                                       const std::vector<Shape>& shapes) {
    for (const Instruction& code : program_.code) {
      std::vector<double>& values = current_;
      values.assign(static_cast<size_t>(num_points_), 0);
      for (int64_t point = 0; point < num_points_; ++point) {
        const auto index = static_cast<size_t>(code.index);
        values[static_cast<size_t>(point)] = code.opcode == Opcode::kLoad
                                                 ? inputs[index][offset(program_.inputs[index], shapes[index], point)]
                                                 : element(code, point);
      }
      values_.push_back(values);
    }
    return values_;
  }

  // Where the point's element lies in a contiguous tensor.
  size_t offset(const Tensor& tensor, const Shape& shape, int64_t point) const {
    Shape indices(sizes_.size());
    for (size_t axis = sizes_.size(); axis-- > 0;) {
      indices[axis] = point % sizes_[axis];
      point /= sizes_[axis];
    }
    int64_t result = 0;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      result = result * shape[dim] + (shape[dim] == 1 ? 0 : indices[static_cast<size_t>(tensor.axes[dim])]);
    }
    return static_cast<size_t>(result);
  }

 private:
  double reduced(const Instruction& code, int64_t point) const {
    const std::vector<double>& x = values_[static_cast<size_t>(code.operands[0])];
    const int64_t length = sizes_.back();
    const int64_t first = point / length * length;
    if (point != first) return current_[static_cast<size_t>(first)];
    double total = x[static_cast<size_t>(first)];
    for (int64_t i = first + 1; i < first + length; ++i) {
      const double value = x[static_cast<size_t>(i)];
      if (code.opcode == Opcode::kReduceMax) {
        total = std::max(total, value);
      } else if (code.opcode == Opcode::kReduceMin) {
        total = std::min(total, value);
      } else {
        total += value;
      }
    }
    if (code.opcode == Opcode::kReduceMean) total /= static_cast<double>(length);
    return rounded(code.dtype, total);
  }

  static double rounded(DType dtype, double value) {
    return dtype == DType::kFloat64 || !is_floating_point(dtype) ? value : static_cast<float>(value);
  }

  double element(const Instruction& code, int64_t point) const {
    if (is_reduction(code.opcode)) return reduced(code, point);
    double operands[3] = {};
    for (int i = 0; i < num_operands(code.opcode); ++i) {
      operands[i] = values_[static_cast<size_t>(code.operands[i])][static_cast<size_t>(point)];
    }
    const auto [a, b, c] = operands;
    switch (code.opcode) {
      case Opcode::kStore: return a;
      case Opcode::kConstant: return rounded(code.dtype, code.number);
      case Opcode::kCast:
        if (code.dtype == DType::kBFloat16) return static_cast<float>(BFloat16(static_cast<float>(a)));
        if (code.dtype == DType::kBool) return a != 0;
        if (code.dtype == DType::kInt32) return std::trunc(a);
        return rounded(code.dtype, a);
      case Opcode::kNeg: return -a;
      case Opcode::kAbs: return std::fabs(a);
      case Opcode::kSqrt: return rounded(code.dtype, std::sqrt(a));
      case Opcode::kAdd: return rounded(code.dtype, a + b);
      case Opcode::kSub: return rounded(code.dtype, a - b);
      case Opcode::kMul: return rounded(code.dtype, a * b);
      case Opcode::kDiv: return rounded(code.dtype, a / b);
      case Opcode::kMax: return std::max(a, b);
      case Opcode::kMin: return std::min(a, b);
      case Opcode::kLt: return a < b;
      case Opcode::kEq: return a == b;
      case Opcode::kSelect: return a != 0 ? b : c;
      default: ADD_FAILURE() << opcode_name(code.opcode); return 0;
    }
  }

  const Program& program_;
  const Shape sizes_;
  int64_t num_points_ = 1;
  std::vector<double> current_;
  std::vector<std::vector<double>> values_;
};

// A program of numbers that f32 holds exactly often enough that sums are the same in any order.
class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed) : generator_(seed) {}

  Program make() {
    const std::vector<std::vector<int32_t>> axes = {{0, 1, 2}, {2}, {1, 2}, {0, 1}, {2, 0, 1}, {}, {1}};
    for (size_t i = 0; i < 4; ++i) {
      const DType dtype = i == 1 ? DType::kBFloat16 : i == 2 && pick(2) == 0 ? DType::kFloat64 : DType::kFloat32;
      program_.inputs.push_back({dtype, i == 0 ? axes[0] : axes[static_cast<size_t>(pick(7))]});
      add({.opcode = Opcode::kLoad, .dtype = dtype, .index = static_cast<int32_t>(i)});
    }
    add({.opcode = Opcode::kConstant, .dtype = DType::kFloat32, .number = 3});
    for (int i = 0; i < 14; ++i) grow();
    const int32_t last = in_float(pick_value());
    const int32_t largest = add({.opcode = Opcode::kReduceMax, .dtype = DType::kFloat32, .operands = {last}});
    program_.num_axes = 3;
    store(last, {0, 1, 2});
    store(add({.opcode = Opcode::kSub, .dtype = DType::kFloat32, .operands = {last, largest}}), {0, 1, 2});
    store(largest, {0, 1});
    return program_;
  }

 private:
  int32_t pick(int32_t below) { return static_cast<int32_t>(generator_() % static_cast<unsigned>(below)); }
  int32_t pick_value() { return pick(static_cast<int32_t>(program_.code.size())); }
  int32_t add(const Instruction& code) {
    program_.code.push_back(code);
    return static_cast<int32_t>(program_.code.size()) - 1;
  }
  DType dtype_of(int32_t value) const { return result_dtype(program_.code[static_cast<size_t>(value)]); }
  int32_t cast(int32_t value, DType dtype) {
    return dtype_of(value) == dtype ? value : add({.opcode = Opcode::kCast, .dtype = dtype, .operands = {value}});
  }
  int32_t in_float(int32_t value) { return cast(value, DType::kFloat32); }
  void store(int32_t value, std::vector<int32_t> axes) {
    const auto index = static_cast<int32_t>(program_.outputs.size());
    program_.outputs.push_back({DType::kFloat32, std::move(axes)});
    add({.opcode = Opcode::kStore, .dtype = DType::kFloat32, .operands = {value}, .index = index});
  }

  void grow() {
    constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt32, DType::kBool};
    const DType dtype = pick(3) != 0 ? DType::kFloat32 : kTypes[pick(5)];
    const int32_t a = cast(pick_value(), dtype), b = cast(pick_value(), dtype);
    constexpr Opcode kPairs[] = {Opcode::kAdd, Opcode::kSub, Opcode::kMax, Opcode::kMin};
    if (dtype == DType::kBool) {
      const int32_t x = in_float(pick_value()), y = in_float(pick_value());
      add({.opcode = Opcode::kSelect, .dtype = DType::kFloat32, .operands = {a, x, y}});
    } else if (dtype != DType::kFloat32) {
      add({.opcode = kPairs[pick(4)], .dtype = dtype, .operands = {a, b}});
    } else if (const int32_t kind = pick(9); kind < 4) {
      add({.opcode = kPairs[kind], .dtype = dtype, .operands = {a, b}});
    } else if (kind == 4) {
      add({.opcode = pick(2) == 0 ? Opcode::kLt : Opcode::kEq, .dtype = dtype, .operands = {a, b}});
    } else if (kind == 5) {
      add({.opcode = pick(2) == 0 ? Opcode::kNeg : Opcode::kAbs, .dtype = dtype, .operands = {a}});
    } else if (kind == 6) {
      add({.opcode = Opcode::kReduceMin, .dtype = dtype, .operands = {a}});
    } else if (kind == 7) {
      // Sums of the loads only: numbers up to 8.
      add({.opcode = Opcode::kReduceSum, .dtype = dtype, .operands = {in_float(pick(4))}});
    } else {
      add({.opcode = Opcode::kReduceMax, .dtype = dtype, .operands = {a}});
    }
  }

  std::mt19937 generator_;
  Program program_;
};

struct Buffer {
  std::vector<double> numbers;
  std::vector<std::byte> bytes;
  TensorView view;
};

Buffer filled(DType dtype, const Shape& shape, std::mt19937& generator) {
  Buffer buffer;
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  buffer.bytes.resize(static_cast<size_t>(count * dtype_size_bytes(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<double>(static_cast<int>(generator() % 17U) - 8);
    buffer.numbers.push_back(number);
    const auto at = static_cast<size_t>(i);
    if (dtype == DType::kFloat64) reinterpret_cast<double*>(buffer.bytes.data())[at] = number;
    if (dtype == DType::kFloat32) reinterpret_cast<float*>(buffer.bytes.data())[at] = static_cast<float>(number);
    if (dtype == DType::kBFloat16) {
      reinterpret_cast<BFloat16*>(buffer.bytes.data())[at] = BFloat16(static_cast<float>(number));
    }
  }
  buffer.view = TensorView::contiguous(buffer.bytes.data(), dtype, shape).value();
  return buffer;
}

void check(const Program& program, const Shape& sizes, unsigned seed) {
  ASSERT_TRUE(verify(program).ok()) << verify(program) << "\n" << to_text(program);
  std::mt19937 generator(seed);
  std::vector<Buffer> inputs, outputs;
  std::vector<Shape> shapes;
  std::vector<std::vector<double>> numbers;
  std::vector<TensorView> input_views, output_views;
  for (const Tensor& tensor : program.inputs) {
    Shape shape;
    for (const int32_t axis : tensor.axes) {
      // Input 0 has all sizes; the others may repeat.
      const bool repeats = !inputs.empty() && generator() % 5 == 0;
      shape.push_back(repeats ? 1 : sizes[static_cast<size_t>(axis)]);
    }
    inputs.push_back(filled(tensor.dtype, shape, generator));
    shapes.push_back(shape);
    numbers.push_back(inputs.back().numbers);
  }
  for (const Buffer& input : inputs) input_views.push_back(input.view);
  for (const Tensor& tensor : program.outputs) {
    Shape shape;
    for (const int32_t axis : tensor.axes) shape.push_back(sizes[static_cast<size_t>(axis)]);
    outputs.push_back(filled(tensor.dtype, shape, generator));
  }
  for (const Buffer& output : outputs) output_views.push_back(output.view);
  const Status status = run(program, input_views, output_views);
  ASSERT_TRUE(status.ok()) << status;
  Definition definition(program, sizes);
  const auto expected = definition.run(numbers, shapes);
  for (size_t i = 0; i < program.code.size(); ++i) {
    if (program.code[i].opcode != Opcode::kStore) continue;
    const auto index = static_cast<size_t>(program.code[i].index);
    const Tensor& tensor = program.outputs[index];
    const Shape shape(output_views[index].shape().begin(), output_views[index].shape().end());
    for (size_t point = 0; point < expected[i].size(); ++point) {
      const size_t at = definition.offset(tensor, shape, static_cast<int64_t>(point));
      ASSERT_EQ(output_views[index].data_as<float>()[at], static_cast<float>(expected[i][point]))
          << "output " << index << ", point " << point << " of\n"
          << to_text(program);
    }
  }
}

// One element; less than a vector, one, more; rows of a tile and a ragged rest; rows longer than a tile.
const Shape kSizes[] = {{1, 1, 1},   {1, 3, 1},    {2, 3, 5},    {1, 1, 16},  {3, 2, 17},
                        {1, 70, 64}, {2, 1, 2048}, {1, 2, 2049}, {1, 1, 5000}};

TEST(TileMachine, RandomProgramsEqualTheDefinition) {
  kernels::for_each_dispatch_target([] {
    for (unsigned seed = 0; seed < 18; ++seed) {
      SCOPED_TRACE(seed);
      check(RandomProgram(seed).make(), kSizes[seed % std::size(kSizes)], seed);
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(TileMachine, GivesTheSameBitsForAnyNumberOfThreads) {
  const Program program = RandomProgram(7).make();
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    check(program, {3, 130, 257}, 7);
  }
  set_num_threads(0);
}

TEST(TileMachine, ProgramsOfSeveralSizesShareAThreadsMemory) {
  for (const Shape& sizes : {Shape{1, 2, 2049}, Shape{1, 1, 1}, Shape{2, 3, 5}, Shape{1, 1, 5000}}) {
    check(RandomProgram(11).make(), sizes, 3);
  }
}

}  // namespace
}  // namespace qx::tile
