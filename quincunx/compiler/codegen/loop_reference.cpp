#include "quincunx/compiler/codegen/loop_reference.h"

#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>

#include "quincunx/base/check.h"
#include "quincunx/base/logging.h"
#include "quincunx/compiler/codegen/loop_plan.h"
#include "quincunx/tensor/storage.h"

namespace qx::compiler {
namespace {

// A value: `real` for floats, `whole` (wrapped to the dtype) for integers and bool.
struct Number {
  double real = 0;
  int64_t whole = 0;
};

int64_t wrap(int64_t value, DType dtype) {
  switch (dtype) {
    case DType::kBool: return value != 0;
    case DType::kInt8: return static_cast<int8_t>(value);
    case DType::kUInt8: return static_cast<uint8_t>(value);
    case DType::kInt16: return static_cast<int16_t>(value);
    case DType::kUInt16: return static_cast<uint16_t>(value);
    case DType::kInt32: return static_cast<int32_t>(value);
    case DType::kUInt32: return static_cast<uint32_t>(value);
    default: return value;
  }
}

double roundTo(double value, DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return static_cast<float>(value);
    case DType::kBFloat16: return static_cast<float>(BFloat16(static_cast<float>(value)));
    case DType::kFloat16: return static_cast<float>(Float16(static_cast<float>(value)));
    default: return value;
  }
}

template <typename T>
int64_t wholeAt(const void* address) {
  return static_cast<int64_t>(*static_cast<const T*>(address));
}

Number readElement(const void* address, DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return {*static_cast<const double*>(address), 0};
    case DType::kFloat32: return {*static_cast<const float*>(address), 0};
    case DType::kBFloat16: return {static_cast<float>(*static_cast<const BFloat16*>(address)), 0};
    case DType::kFloat16: return {static_cast<float>(*static_cast<const Float16*>(address)), 0};
    case DType::kBool: return {0, wholeAt<uint8_t>(address) != 0};
    case DType::kInt8: return {0, wholeAt<int8_t>(address)};
    case DType::kUInt8: return {0, wholeAt<uint8_t>(address)};
    case DType::kInt16: return {0, wholeAt<int16_t>(address)};
    case DType::kUInt16: return {0, wholeAt<uint16_t>(address)};
    case DType::kInt32: return {0, wholeAt<int32_t>(address)};
    case DType::kUInt32: return {0, wholeAt<uint32_t>(address)};
    default: return {0, wholeAt<int64_t>(address)};
  }
}

void writeElement(void* address, DType dtype, Number value) {
  switch (dtype) {
    case DType::kFloat64: *static_cast<double*>(address) = value.real; return;
    case DType::kFloat32: *static_cast<float*>(address) = static_cast<float>(value.real); return;
    case DType::kBFloat16: *static_cast<BFloat16*>(address) = BFloat16(static_cast<float>(value.real)); return;
    case DType::kFloat16: *static_cast<Float16*>(address) = Float16(static_cast<float>(value.real)); return;
    default: break;
  }
  switch (dtype_size_bytes(dtype)) {
    case 1: *static_cast<uint8_t*>(address) = static_cast<uint8_t>(value.whole); return;
    case 2: *static_cast<uint16_t*>(address) = static_cast<uint16_t>(value.whole); return;
    case 4: *static_cast<uint32_t*>(address) = static_cast<uint32_t>(value.whole); return;
    default: *static_cast<int64_t*>(address) = value.whole;
  }
}

int64_t saturate(double value, DType dtype) {
  if (std::isnan(value)) return 0;
  const bool is_unsigned = dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32;
  const int bits = static_cast<int>(dtype_size_bytes(dtype) * 8);
  const double low = is_unsigned ? 0 : -std::ldexp(1.0, bits - 1);
  const double high = std::ldexp(1.0, is_unsigned ? bits : bits - 1);
  if (value <= low) return bits == 64 ? INT64_MIN : static_cast<int64_t>(low);
  if (value >= high) return bits == 64 ? INT64_MAX : static_cast<int64_t>(high - 1);
  return static_cast<int64_t>(value);
}

Number castNumber(Number value, DType from, DType to) {
  if (is_floating_point(from)) {
    if (is_floating_point(to)) return {roundTo(value.real, to), 0};
    return {0, to == DType::kBool ? (value.real != 0 ? 1 : 0) : saturate(value.real, to)};
  }
  if (is_floating_point(to)) return {roundTo(static_cast<double>(value.whole), to), 0};
  return {0, wrap(value.whole, to)};
}

double unaryFunction(Opcode opcode, double x) {
  switch (opcode) {
    case Opcode::kNeg: return -x;
    case Opcode::kAbs: return std::fabs(x);
    case Opcode::kSign: return x > 0 ? 1 : x < 0 ? -1 : 0;
    case Opcode::kExp: return std::exp(x);
    case Opcode::kExpm1: return std::expm1(x);
    case Opcode::kLog: return std::log(x);
    case Opcode::kLog1p: return std::log1p(x);
    case Opcode::kSqrt: return std::sqrt(x);
    case Opcode::kRsqrt: return 1 / std::sqrt(x);
    case Opcode::kReciprocal: return 1 / x;
    case Opcode::kTanh: return std::tanh(x);
    case Opcode::kErf: return std::erf(x);
    case Opcode::kSigmoid: return 1 / (1 + std::exp(-x));
    case Opcode::kSin: return std::sin(x);
    case Opcode::kCos: return std::cos(x);
    case Opcode::kFloor: return std::floor(x);
    case Opcode::kCeil: return std::ceil(x);
    case Opcode::kRound: return std::nearbyint(x);
    case Opcode::kTrunc: return std::trunc(x);
    default: QX_CHECK_MESSAGE(false, "no function of floats");
  }
}

double binaryFunction(Opcode opcode, double a, double b) {
  const bool has_nan = std::isnan(a) || std::isnan(b);
  const double rest = std::fmod(a, b);
  switch (opcode) {
    case Opcode::kAdd: return a + b;
    case Opcode::kSub: return a - b;
    case Opcode::kMul: return a * b;
    case Opcode::kDiv: return a / b;
    case Opcode::kPow: return std::pow(a, b);
    case Opcode::kMax: return has_nan ? std::numeric_limits<double>::quiet_NaN() : a > b ? a : b;
    case Opcode::kMin: return has_nan ? std::numeric_limits<double>::quiet_NaN() : a < b ? a : b;
    case Opcode::kRemainder: return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    case Opcode::kFloorDiv:
      if (b == 0) return a / b;
      return std::floor((a - (rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest)) / b + 0.25);
    default: QX_CHECK_MESSAGE(false, "no operation on floats");
  }
}

// As bits, so that overflow wraps.
int64_t binaryInteger(Opcode opcode, DType dtype, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a);
  const auto ub = static_cast<uint64_t>(b);
  int64_t quotient = 0;
  if (b == -1) {
    quotient = static_cast<int64_t>(-ua);
  } else if (b != 0) {
    quotient = a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
  }
  switch (opcode) {
    case Opcode::kAdd: return static_cast<int64_t>(ua + ub);
    case Opcode::kSub: return static_cast<int64_t>(ua - ub);
    case Opcode::kMul: return static_cast<int64_t>(ua * ub);
    case Opcode::kFloorDiv: return quotient;
    case Opcode::kRemainder: return static_cast<int64_t>(ua - static_cast<uint64_t>(quotient) * ub);
    case Opcode::kMax: return std::max(a, b);
    case Opcode::kMin: return std::min(a, b);
    case Opcode::kAnd: return a & b;
    case Opcode::kOr: return a | b;
    case Opcode::kXor: return a ^ b;
    case Opcode::kNeg: return static_cast<int64_t>(-ua);
    case Opcode::kAbs: return a < 0 && dtype != DType::kUInt64 ? static_cast<int64_t>(-ua) : a;
    case Opcode::kSign: return a > 0 ? 1 : a < 0 ? -1 : 0;
    case Opcode::kNot: return dtype == DType::kBool ? a == 0 : ~a;
    default: return a;  // floor, ceil, round, trunc
  }
}

template <typename T>
bool compareNumbers(Opcode opcode, T a, T b) {
  switch (opcode) {
    case Opcode::kEq: return a == b;
    case Opcode::kNe: return a != b;
    case Opcode::kLt: return a < b;
    case Opcode::kLe: return a <= b;
    case Opcode::kGt: return a > b;
    default: return a >= b;
  }
}

class Interpreter {
 public:
  Interpreter(const LoopProgram& program, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
              std::span<const int64_t> symbols)
      : program_(program), inputs_(inputs), outputs_(outputs), symbols_(symbols) {
    for (const Axis& axis : program.axes) sizes_.push_back(evaluate(axis.size, symbols.data()));
    index_.resize(sizes_.size());
  }

  void run() {
    overAxes(0, false, [&] { runRow(); });
  }

 private:
  // body() at each point of the axes that are reduced, or that are not.
  template <typename Body>
  void overAxes(size_t axis, bool reduced, const Body& body) {
    if (axis == sizes_.size()) return body();
    if (program_.axes[axis].reduced != reduced) return overAxes(axis + 1, reduced, body);
    for (index_[axis] = 0; index_[axis] < sizes_[axis]; ++index_[axis]) overAxes(axis + 1, reduced, body);
    index_[axis] = 0;
  }

  void runRow() {
    reduced_.clear();
    for (size_t number = 0; number < program_.code.size(); ++number) {
      const Instruction& code = program_.code[number];
      if (isReduction(code.opcode)) reduced_[number] = reduce(code);
    }
    const LoopLevels levels = analyseLevels(program_);
    for (size_t number = 0; number < program_.code.size(); ++number) {
      const Instruction& code = program_.code[number];
      if (code.opcode != Opcode::kStore) continue;
      const auto store = [&] {
        writeElement(addressOf(program_.views[code.index]), code.dtype, value(code.operands[0]));
      };
      if (levels.row[number]) {
        store();
      } else {
        overAxes(0, true, store);
      }
    }
  }

  Number reduce(const Instruction& code) {
    const bool prod = code.opcode == Opcode::kReduceProd;
    Number total{prod ? 1.0 : 0.0, prod ? 1 : 0};
    bool first = true;
    overAxes(0, true, [&] {
      const Number next = value(code.operands[0]);
      if (code.opcode == Opcode::kReduceMax || code.opcode == Opcode::kReduceMin) {
        const Opcode pick = code.opcode == Opcode::kReduceMax ? Opcode::kMax : Opcode::kMin;
        total = first ? next : combine(pick, code.dtype, total, next);
      } else {
        total = combine(prod ? Opcode::kMul : Opcode::kAdd, code.dtype, total, next);
      }
      first = false;
    });
    return total;
  }

  static Number combine(Opcode opcode, DType dtype, Number a, Number b) {
    if (is_floating_point(dtype)) return {binaryFunction(opcode, a.real, b.real), 0};
    return {0, wrap(binaryInteger(opcode, dtype, a.whole, b.whole), dtype)};
  }

  void* addressOf(const View& view) const {
    const auto tensor = static_cast<size_t>(view.tensor);
    const TensorView& placed = tensor < inputs_.size() ? inputs_[tensor] : outputs_[tensor - inputs_.size()];
    auto* address = static_cast<char*>(placed.data());
    for (size_t dim = 0; dim < view.dims.size(); ++dim) {
      int64_t position = 0;
      for (const int32_t axis : view.dims[dim].axes) position = position * sizes_[axis] + index_[axis];
      const int64_t element = evaluate(view.dims[dim].start, symbols_.data()) + view.dims[dim].step * position;
      address += element * placed.stride(static_cast<int>(dim)) * dtype_size_bytes(placed.dtype());
    }
    return address;
  }

  Number value(int32_t number) {
    const Instruction& code = program_.code[number];
    if (const auto found = reduced_.find(number); found != reduced_.end()) return found->second;
    if (code.opcode == Opcode::kLoad) return readElement(addressOf(program_.views[code.index]), code.dtype);
    if (code.opcode == Opcode::kConstant) return {code.number, wrap(code.index, code.dtype)};
    if (code.opcode == Opcode::kScalar) {
      int64_t product = 1;
      for (const graph::Dim& dim : program_.scalars[code.index]) product *= evaluate(dim, symbols_.data());
      return {0, product};
    }
    const DType type = program_.code[code.operands[0]].dtype;
    const Number a = value(code.operands[0]);
    if (code.opcode == Opcode::kCast) return type == code.dtype ? a : castNumber(a, type, code.dtype);
    if (code.opcode == Opcode::kSelect) return value(code.operands[a.whole != 0 ? 1 : 2]);
    const Number b = numOperands(code.opcode) > 1 ? value(code.operands[1]) : Number{};
    if (code.opcode == Opcode::kIsNan) return {0, is_floating_point(type) && std::isnan(a.real)};
    if (code.dtype == DType::kBool && code.opcode >= Opcode::kEq && code.opcode <= Opcode::kGe) {
      return {0, is_floating_point(type) ? compareNumbers(code.opcode, a.real, b.real)
                                         : compareNumbers(code.opcode, a.whole, b.whole)};
    }
    if (!is_floating_point(type)) return {0, wrap(binaryInteger(code.opcode, type, a.whole, b.whole), type)};
    return {numOperands(code.opcode) == 1 ? unaryFunction(code.opcode, a.real)
                                          : binaryFunction(code.opcode, a.real, b.real),
            0};
  }

  const LoopProgram& program_;
  std::span<const TensorView> inputs_;
  std::span<const TensorView> outputs_;
  std::span<const int64_t> symbols_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> index_;
  std::map<int32_t, Number> reduced_;
};

void appendElements(const TensorView& view, int dim, const char* address, std::vector<Number>& elements) {
  if (dim == view.num_dims()) return elements.push_back(readElement(address, view.dtype()));
  const int64_t step = view.stride(dim) * dtype_size_bytes(view.dtype());
  for (int64_t i = 0; i < view.size(dim); ++i) appendElements(view, dim + 1, address + i * step, elements);
}

std::vector<Number> elementsOf(const TensorView& view) {
  std::vector<Number> elements;
  appendElements(view, 0, static_cast<const char*>(view.data()), elements);
  return elements;
}

Status compareOutput(const TensorView& got, const TensorView& expected, size_t output) {
  const std::vector<Number> ours = elementsOf(got);
  const std::vector<Number> theirs = elementsOf(expected);
  double largest = 0;
  for (const Number& number : theirs) {
    if (std::isfinite(number.real)) largest = std::max(largest, std::fabs(number.real));
  }
  const double unit = got.dtype() == DType::kBFloat16 ? 0x1p-8 : got.dtype() == DType::kFloat16 ? 0x1p-11 : 0;
  const double allowed = std::max(kCheckTolerance, 4 * unit) * largest;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double a = ours[i].real;
    const double b = theirs[i].real;
    const bool equal = a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= allowed;
    if (equal && ours[i].whole == theirs[i].whole) continue;
    return internal_error("check: element " + std::to_string(i) + " of output " + std::to_string(output) + " is " +
                          std::to_string(is_floating_point(got.dtype()) ? a : static_cast<double>(ours[i].whole)) +
                          ", the reference gives " +
                          std::to_string(is_floating_point(got.dtype()) ? b : static_cast<double>(theirs[i].whole)));
  }
  return ok_status();
}

class CheckedKernel : public Kernel {
 public:
  CheckedKernel(const LoopProgram& program, std::shared_ptr<const Kernel> kernel)
      : program_(program), kernel_(std::move(kernel)) {}

  Status run(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
             std::span<const int64_t> symbols) const override {
    QX_RETURN_IF_ERROR(kernel_->run(inputs, outputs, symbols));
    if (checked_.exchange(true)) return ok_status();
    std::vector<std::shared_ptr<Storage>> storages;
    std::vector<TensorView> expected;
    for (const TensorView& output : outputs) {
      QX_ASSIGN_OR_RETURN(auto storage, Storage::allocate(std::max<int64_t>(1, output.size_bytes())));
      QX_ASSIGN_OR_RETURN(const TensorView view, storage->view(output.dtype(), output.shape()));
      storages.push_back(std::move(storage));
      expected.push_back(view);
    }
    QX_RETURN_IF_ERROR(runReference(program_, inputs, expected, symbols));
    for (size_t i = 0; i < outputs.size(); ++i) QX_RETURN_IF_ERROR(compareOutput(outputs[i], expected[i], i));
    return ok_status();
  }
  std::string to_string() const override { return kernel_->to_string(); }

 private:
  const LoopProgram program_;
  const std::shared_ptr<const Kernel> kernel_;
  mutable std::atomic<bool> checked_{false};
};

}  // namespace

Status runReference(const LoopProgram& program, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                    std::span<const int64_t> symbols) {
  QX_RETURN_IF_ERROR(LoopSignature(program).check(inputs, outputs, symbols));
  Interpreter(program, inputs, outputs, symbols).run();
  return ok_status();
}

std::shared_ptr<const Kernel> checkedKernel(const LoopProgram& program, std::shared_ptr<const Kernel> kernel) {
  return std::make_shared<CheckedKernel>(program, std::move(kernel));
}

}  // namespace qx::compiler
