// Modules of mfuse evaluated in f64 by the definitions of the operations, composites included: what the rewrites are
// checked against. It shares no code with the compiler.
#pragma once

#include <cmath>
#include <vector>

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "quincunx/compiler/dialect/mfuse.h"

namespace qx::compiler {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> data;  // row-major
};

using Index = std::vector<int64_t>;

inline int64_t countOf(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

inline Index indexOf(const std::vector<int64_t>& shape, int64_t flat) {
  Index index(shape.size());
  for (size_t dim = shape.size(); dim-- > 0; flat /= shape[dim]) index[dim] = flat % shape[dim];
  return index;
}

// The element that broadcasts to `index`.
inline double at(const Array& array, const Index& index) {
  int64_t flat = 0;
  for (size_t dim = 0; dim < array.shape.size(); ++dim) {
    int64_t position = index[index.size() - array.shape.size() + dim];
    flat = flat * array.shape[dim] + (array.shape[dim] == 1 ? 0 : position);
  }
  return array.data[static_cast<size_t>(flat)];
}

class ModuleInterpreter {
 public:
  // Every symbol has this value.
  static constexpr int64_t kSymbol = 3;

  static std::vector<int64_t> shapeOf(mlir::Type type) {
    std::vector<int64_t> shape;
    auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(type);
    for (int64_t dim = 0; tensor && dim < tensor.getRank(); ++dim) {
      shape.push_back(tensor.isDynamicDim(dim) ? kSymbol : tensor.getDimSize(dim));
    }
    return shape;
  }

  // The results of a function. An operation that has no definition here ends it: `known` turns false.
  std::vector<Array> run(mlir::func::FuncOp function, const std::vector<Array>& arguments) {
    values_.clear();
    for (auto [argument, array] : llvm::zip_equal(function.getArguments(), arguments)) values_[argument] = array;
    std::vector<Array> results;
    for (mlir::Operation& op : function.getBody().front()) {
      if (llvm::isa<mlir::func::ReturnOp>(op)) {
        for (mlir::Value operand : op.getOperands()) results.push_back(values_[operand]);
      } else {
        evaluate(op);
      }
    }
    return results;
  }

  bool known = true;

 private:
  const Array& value(mlir::Value value) { return values_.find(value)->second; }

  // Element by element from its index.
  template <typename Function>
  void fill(mlir::Value result, Function element) {
    Array array{shapeOf(result.getType()), {}};
    for (int64_t flat = 0; flat < countOf(array.shape); ++flat)
      array.data.push_back(element(indexOf(array.shape, flat)));
    values_[result] = std::move(array);
  }

  static double gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
  static double geluTanh(double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
  static double silu(double x) { return x / (1 + std::exp(-x)); }

  double unary(mfuse::UnaryKind kind, double x) {
    using Kind = mfuse::UnaryKind;
    switch (kind) {
      case Kind::neg: return -x;
      case Kind::exp: return std::exp(x);
      case Kind::log: return std::log(x);
      case Kind::sqrt: return std::sqrt(x);
      case Kind::rsqrt: return 1 / std::sqrt(x);
      case Kind::reciprocal: return 1 / x;
      case Kind::tanh: return std::tanh(x);
      case Kind::erf: return std::erf(x);
      case Kind::sigmoid: return 1 / (1 + std::exp(-x));
      case Kind::relu: return std::max(x, 0.0);
      case Kind::silu: return silu(x);
      case Kind::gelu_erf: return gelu(x);
      case Kind::gelu_tanh: return geluTanh(x);
      case Kind::gelu_quick: return x / (1 + std::exp(-1.702 * x));
      default: known = false; return 0;
    }
  }

  double binary(mfuse::BinaryKind kind, double a, double b) {
    using Kind = mfuse::BinaryKind;
    switch (kind) {
      case Kind::add: return a + b;
      case Kind::sub: return a - b;
      case Kind::mul: return a * b;
      case Kind::div: return a / b;
      case Kind::pow: return std::pow(a, b);
      case Kind::swiglu: return silu(a) * b;
      case Kind::geglu_erf: return gelu(a) * b;
      case Kind::geglu_tanh: return geluTanh(a) * b;
      default: known = false; return 0;
    }
  }

  // Every value along `dims` at `index`.
  static std::vector<double> along(const Array& x, llvm::ArrayRef<int64_t> dims, const Index& index) {
    std::vector<double> found;
    for (int64_t flat = 0; flat < countOf(x.shape); ++flat) {
      Index candidate = indexOf(x.shape, flat);
      bool same = true;
      for (size_t dim = 0; dim < x.shape.size(); ++dim) {
        same &= llvm::is_contained(dims, static_cast<int64_t>(dim)) || candidate[dim] == index[dim];
      }
      if (same) found.push_back(x.data[static_cast<size_t>(flat)]);
    }
    return found;
  }
  static double mean(const std::vector<double>& numbers) {
    double sum = 0;
    for (double number : numbers) sum += number;
    return sum / static_cast<double>(numbers.size());
  }
  static double variance(const std::vector<double>& numbers, double correction) {
    double center = mean(numbers), sum = 0;
    for (double number : numbers) sum += (number - center) * (number - center);
    return sum / (static_cast<double>(numbers.size()) - correction);
  }

  // An index of the operand from one of a result that has lost `dims`.
  static Index widened(Index index, llvm::ArrayRef<int64_t> dims, bool keepdim) {
    for (int64_t dim : dims) {
      if (!keepdim) index.insert(index.begin() + dim, 0);
    }
    return index;
  }

  double reduced(mfuse::ReduceKind kind, const std::vector<double>& numbers) {
    switch (kind) {
      case mfuse::ReduceKind::sum: return mean(numbers) * static_cast<double>(numbers.size());
      case mfuse::ReduceKind::mean: return mean(numbers);
      case mfuse::ReduceKind::max: return *std::max_element(numbers.begin(), numbers.end());
      case mfuse::ReduceKind::min: return *std::min_element(numbers.begin(), numbers.end());
      default: known = false; return 0;
    }
  }

  void evaluate(mlir::Operation& op) {
    if (auto scalar = llvm::dyn_cast<mfuse::ScalarOp>(op)) {
      auto number = llvm::dyn_cast<mlir::FloatAttr>(scalar.getValue());
      double value = number ? number.getValueAsDouble()
                            : static_cast<double>(llvm::cast<mlir::IntegerAttr>(scalar.getValue()).getInt());
      values_[scalar.getResult()] = {{}, {value}};
    } else if (auto unaryOp = llvm::dyn_cast<mfuse::UnaryOp>(op)) {
      const Array x = value(unaryOp.getInput());
      fill(unaryOp, [&](const Index& index) { return unary(unaryOp.getKind(), at(x, index)); });
    } else if (auto binaryOp = llvm::dyn_cast<mfuse::BinaryOp>(op)) {
      const Array a = value(binaryOp.getLhs()), b = value(binaryOp.getRhs());
      fill(binaryOp, [&](const Index& index) { return binary(binaryOp.getKind(), at(a, index), at(b, index)); });
    } else if (auto cast = llvm::dyn_cast<mfuse::CastOp>(op)) {
      values_[cast.getResult()] = Array(value(cast.getInput()));
    } else if (auto reduce = llvm::dyn_cast<mfuse::ReduceOp>(op)) {
      const Array x = value(reduce.getInput());
      fill(reduce, [&](const Index& index) {
        return reduced(reduce.getKind(),
                       along(x, reduce.getDims(), widened(index, reduce.getDims(), reduce.getKeepdim())));
      });
    } else if (auto var = llvm::dyn_cast<mfuse::VarianceOp>(op)) {
      const Array x = value(var.getInput());
      fill(var, [&](const Index& index) {
        return variance(along(x, var.getDims(), widened(index, var.getDims(), var.getKeepdim())),
                        var.getCorrection().convertToDouble());
      });
    } else if (op.hasTrait<mfuse::Rearrange>()) {
      rearrange(op);
    } else {
      composite(op);
    }
  }

  void rearrange(mlir::Operation& op) {
    const Array x = value(op.getOperand(0));
    if (llvm::isa<mfuse::ReshapeOp>(op)) {
      values_[op.getResult(0)] = {shapeOf(op.getResult(0).getType()), x.data};
    } else if (llvm::isa<mfuse::BroadcastOp>(op)) {
      fill(op.getResult(0), [&](const Index& index) { return at(x, index); });
    } else if (auto permute = llvm::dyn_cast<mfuse::PermuteOp>(op)) {
      fill(permute, [&](const Index& index) {
        Index source(index.size());
        for (auto [to, from] : llvm::enumerate(permute.getPermutation())) source[static_cast<size_t>(from)] = index[to];
        return at(x, source);
      });
    } else if (auto slice = llvm::dyn_cast<mfuse::SliceOp>(op)) {
      fill(slice, [&](Index index) {
        int64_t& position = index[slice.getDim()];
        position = static_cast<int64_t>(slice.getStart()) + position * static_cast<int64_t>(slice.getStep());
        return at(x, index);
      });
    } else {
      auto cat = llvm::cast<mfuse::CatOp>(op);
      fill(cat, [&](Index index) {
        for (mlir::Value input : cat.getInputs()) {
          const Array& part = value(input);
          if (index[cat.getDim()] < part.shape[cat.getDim()]) return at(part, index);
          index[cat.getDim()] -= part.shape[cat.getDim()];
        }
        return static_cast<double>(NAN);
      });
    }
  }

  double parameter(mlir::Value parameterValue, const Index& index, double missing) {
    return parameterValue ? at(value(parameterValue), index) : missing;
  }

  template <typename Norm>
  void rmsNorm(Norm op, const Array& x) {
    int64_t last = static_cast<int64_t>(x.shape.size()) - 1;
    fill(op.getResult(), [&](const Index& index) {
      double squares = 0;
      std::vector<double> row = along(x, {last}, index);
      for (double number : row) squares += number * number / static_cast<double>(row.size());
      return at(x, index) / std::sqrt(squares + op.getEps().convertToDouble()) * parameter(op.getWeight(), index, 1);
    });
  }

  void layerNorm(mfuse::LayerNormOp op) {
    const Array x = value(op.getInput());
    auto rank = static_cast<int64_t>(x.shape.size());
    auto dims = llvm::to_vector(llvm::seq(rank - static_cast<int64_t>(op.getNumDims()), rank));
    fill(op, [&](const Index& index) {
      std::vector<double> group = along(x, dims, index);
      double spread = variance(group, op.getCorrection().convertToDouble()), eps = op.getEps().convertToDouble();
      double scale = op.getEpsOutside() ? std::sqrt(spread) + eps : std::sqrt(spread + eps);
      return (at(x, index) - mean(group)) / scale * parameter(op.getWeight(), index, 1) +
             parameter(op.getBias(), index, 0);
    });
  }

  void softmax(mfuse::SoftmaxOp op) {
    const Array x = value(op.getInput());
    fill(op, [&](const Index& index) {
      double sum = 0;
      for (double number : along(x, {static_cast<int64_t>(op.getDim())}, index)) sum += std::exp(number - at(x, index));
      return op.getLogarithm() ? -std::log(sum) : 1 / sum;
    });
  }

  void rope(mfuse::RopeOp op) {
    const Array x = value(op.getInput()), cos = value(op.getCos()), sin = value(op.getSin());
    int64_t half = x.shape.back() / 2;
    fill(op, [&](const Index& index) {
      Index other = index;
      bool isHalf = op.getStyle() == mfuse::RopeStyle::half;
      bool first = isHalf ? index.back() < half : index.back() % 2 == 0;
      other.back() += (first ? 1 : -1) * (isHalf ? half : 1);
      return at(x, index) * at(cos, index) + (first ? -1 : 1) * at(x, other) * at(sin, index);
    });
  }

  void matmul(mfuse::MatmulOp op) {
    const Array lhs = value(op.getLhs()), rhs = value(op.getRhs());
    fill(op, [&](const Index& index) {
      double sum = 0;
      int64_t inner = lhs.shape[lhs.shape.size() - (op.getTransposeLhs() ? 2 : 1)];
      for (int64_t k = 0; k < inner; ++k) {
        Index a = index, b = index;
        a.back() = k;
        b[b.size() - 2] = k;
        if (op.getTransposeLhs()) std::swap(a.back(), a[a.size() - 2]);
        if (op.getTransposeRhs()) std::swap(b.back(), b[b.size() - 2]);
        sum += at(lhs, a) * at(rhs, b);
      }
      if (op.getScale()) sum *= op.getScale()->convertToDouble();
      sum += parameter(op.getBias(), index, 0);
      if (op.getActivation()) sum = unary(*op.getActivation(), sum);
      if (op.getMultiplier()) sum *= parameter(op.getMultiplier(), index, 1);
      return sum + parameter(op.getResidual(), index, 0);
    });
  }

  void composite(mlir::Operation& op) {
    if (auto norm = llvm::dyn_cast<mfuse::RmsNormOp>(op)) {
      rmsNorm(norm, Array(value(norm.getInput())));
    } else if (auto sum = llvm::dyn_cast<mfuse::AddRmsNormOp>(op)) {
      const Array a = value(sum.getInput()), b = value(sum.getResidual());
      fill(sum.getSum(), [&](const Index& index) { return at(a, index) + at(b, index); });
      rmsNorm(sum, Array(value(sum.getSum())));
    } else if (auto layer = llvm::dyn_cast<mfuse::LayerNormOp>(op)) {
      layerNorm(layer);
    } else if (auto soft = llvm::dyn_cast<mfuse::SoftmaxOp>(op)) {
      softmax(soft);
    } else if (auto rotary = llvm::dyn_cast<mfuse::RopeOp>(op)) {
      rope(rotary);
    } else if (auto product = llvm::dyn_cast<mfuse::MatmulOp>(op)) {
      matmul(product);
    } else {
      known = false;
      for (mlir::Value result : op.getResults()) fill(result, [](const Index&) { return 0.0; });
    }
  }

  llvm::DenseMap<mlir::Value, Array> values_;
};

}  // namespace qx::compiler
