#include "quincunx/compiler/codegen/product_kernel.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "quincunx/parallel/parallel_for.h"

namespace qx::compiler {
namespace {

// A thread's share of a pass over the result, so large that starting it costs little beside it.
constexpr int64_t kChunkElements = 1 << 14;

// [rows, columns] of the same memory, columns being the last dim; null if the leading dims are no single one.
std::optional<TensorView> asMatrix(const TensorView& view) {
  const int last = view.num_dims() - 1;
  int64_t rows = 1, stride = 0;
  for (int dim = last; dim-- > 0;) {
    if (view.size(dim) == 1) continue;
    const bool joins = rows == 1 || view.num_elements() == 0 || view.stride(dim) == stride * rows;
    if (!joins) return std::nullopt;
    if (rows == 1) stride = view.stride(dim);
    rows *= view.size(dim);
  }
  const std::array shape{rows, view.size(last)};
  const std::array strides{stride, view.stride(last)};
  Result<TensorView> matrix = TensorView::strided(view.data(), view.dtype(), shape, strides);
  return matrix.ok() ? std::optional(*matrix) : std::nullopt;
}

// visit(element of the view, its number in row-major order)
void forEachElement(const TensorView& view, const std::function<void(float&, int64_t)>& visit) {
  const int64_t count = view.num_elements();
  for (int64_t number = 0; number < count; ++number) {
    int64_t left = number, offset = 0;
    for (int dim = view.num_dims(); dim-- > 0; left /= view.size(dim))
      offset += left % view.size(dim) * view.stride(dim);
    visit(view.data_as<float>()[offset], number);
  }
}

// A tensor as a matrix: a view of it, or a copy where its strides allow none.
class Matrix {
 public:
  static Result<Matrix> of(const TensorView& view, bool copies_elements) {
    Matrix matrix;
    if (const auto plain = asMatrix(view)) {
      matrix.view_ = *plain;
      return matrix;
    }
    matrix.copy_.resize(static_cast<size_t>(view.num_elements()));
    if (copies_elements) {
      forEachElement(view,
                     [&](float& element, int64_t number) { matrix.copy_[static_cast<size_t>(number)] = element; });
    }
    const int64_t columns = view.size(-1);
    const std::array shape{columns == 0 ? 0 : view.num_elements() / columns, columns};
    QX_ASSIGN_OR_RETURN(matrix.view_, TensorView::contiguous(matrix.copy_.data(), view.dtype(), shape));
    return matrix;
  }

  const TensorView& view() const { return view_; }
  void writeTo(const TensorView& target) const {
    if (copy_.empty()) return;
    forEachElement(target, [&](float& element, int64_t number) { element = copy_[static_cast<size_t>(number)]; });
  }

 private:
  TensorView view_;
  std::vector<float> copy_;
};

std::string_view activationName(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kNone: return "none";
    case kernels::Activation::kRelu: return "relu";
    case kernels::Activation::kGeluTanh: return "gelu_tanh";
    case kernels::Activation::kGeluErf: return "gelu_erf";
    case kernels::Activation::kSilu: return "silu";
  }
  return "";
}

Status checkView(const std::string& name, const TensorView& view, const graph::TensorType& type) {
  if (view.dtype() == type.dtype && view.num_dims() == static_cast<int>(type.shape.size())) return ok_status();
  return invalid_argument(name + " is " + view.to_string() + ", expected " + std::string(dtype_name(type.dtype)) +
                          " of " + std::to_string(type.shape.size()) + " dims");
}

// One row of x = x * multiplier + residual.
void multiplyAddRow(float* x, const float* multiplier, const float* residual, int64_t columns) {
  if (residual == nullptr) {
    for (int64_t i = 0; i < columns; ++i) x[i] *= multiplier[i];
  } else {
    for (int64_t i = 0; i < columns; ++i) x[i] = x[i] * multiplier[i] + residual[i];
  }
}

// The kernel library's epilogue ends with a residual: what has a multiplier goes over the result once more.
void multiplyAdd(const TensorView& x, const TensorView& multiplier, const TensorView* residual) {
  const int64_t columns = x.size(1);
  const auto at = [](const TensorView& view, int64_t row, int64_t column) {
    return view.data_as<float>() + row * view.stride(0) + column * view.stride(1);
  };
  const bool adjacent =
      x.stride(1) == 1 && multiplier.stride(1) == 1 && (residual == nullptr || residual->stride(1) == 1);
  const int64_t chunk = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, columns));
  parallel_for(0, x.size(0), chunk, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t length = adjacent ? columns : 1;
      for (int64_t column = 0; column < columns; column += length) {
        const float* const added = residual == nullptr ? nullptr : at(*residual, row, column);
        multiplyAddRow(at(x, row, column), at(multiplier, row, column), added, length);
      }
    }
  });
}

class ProductKernel : public PackingKernel {
 public:
  explicit ProductKernel(ProductProgram program) : program_(std::move(program)) {}

  int32_t weight() const override { return program_.weight; }

  Result<TensorView> rightOperand(const TensorView& weight) const override {
    QX_RETURN_IF_ERROR(checkView("inputs[" + std::to_string(program_.weight) + "]", weight,
                                 program_.inputs[static_cast<size_t>(program_.weight)]));
    return program_.transpose_weight ? weight.transpose(0, 1) : Result<TensorView>(weight);
  }

  Status run(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
             std::span<const int64_t>) const override {
    QX_RETURN_IF_ERROR(check(inputs, outputs));
    QX_ASSIGN_OR_RETURN(const TensorView right, rightOperand(inputs[static_cast<size_t>(program_.weight)]));
    return multiply(inputs, outputs[0], [&](const TensorView& left, const TensorView& result, const auto& options) {
      return kernels::gemm(left, right, result, options);
    });
  }

  Status runPacked(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                   std::span<const float> packed) const override {
    QX_RETURN_IF_ERROR(check(inputs, outputs));
    QX_ASSIGN_OR_RETURN(const TensorView right, rightOperand(inputs[static_cast<size_t>(program_.weight)]));
    QX_ASSIGN_OR_RETURN(const int64_t size, kernels::packed_matrix_size(right.size(0), right.size(1)));
    if (static_cast<int64_t>(packed.size()) < size) {
      return invalid_argument("packed has " + std::to_string(packed.size()) + " floats, expected " +
                              std::to_string(size));
    }
    const kernels::PackedMatrix matrix{packed.data(), right.size(0), right.size(1)};
    return multiply(inputs, outputs[0], [&](const TensorView& left, const TensorView& result, const auto& options) {
      return kernels::gemm(left, matrix, result, options);
    });
  }

  std::string to_string() const override {
    const auto operand = [](const char* name, int32_t position, bool transposed = false) {
      if (position < 0) return std::string();
      return std::string(" ") + name + " input " + std::to_string(position) + (transposed ? " transposed" : "");
    };
    std::string text = "product" + operand("of", program_.lhs, program_.transpose_lhs) +
                       operand("and", program_.weight, program_.transpose_weight);
    if (program_.scale != 1.0) text += " scale " + std::to_string(program_.scale);
    text += operand("bias", program_.bias);
    if (program_.activation != kernels::Activation::kNone) {
      text += " activation " + std::string(activationName(program_.activation));
    }
    return text + operand("multiplier", program_.multiplier) + operand("residual", program_.residual) + "\n";
  }

 private:
  Status check(std::span<const TensorView> inputs, std::span<const TensorView> outputs) const {
    if (inputs.size() != program_.inputs.size() || outputs.size() != 1) {
      return invalid_argument("expected " + std::to_string(program_.inputs.size()) + " inputs and 1 output, got " +
                              std::to_string(inputs.size()) + " and " + std::to_string(outputs.size()));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      QX_RETURN_IF_ERROR(checkView("inputs[" + std::to_string(i) + "]", inputs[i], program_.inputs[i]));
    }
    return checkView("outputs[0]", outputs[0], program_.output);
  }

  template <typename Gemm>
  Status multiply(std::span<const TensorView> inputs, const TensorView& output, const Gemm& gemm) const {
    TensorView lhs = inputs[static_cast<size_t>(program_.lhs)];
    if (program_.transpose_lhs) {
      QX_ASSIGN_OR_RETURN(lhs, lhs.transpose(lhs.num_dims() - 2, lhs.num_dims() - 1));
    }
    QX_ASSIGN_OR_RETURN(const Matrix left, Matrix::of(lhs, true));
    QX_ASSIGN_OR_RETURN(const Matrix result, Matrix::of(output, false));
    Matrix residual;
    kernels::GemmOptions options;
    options.scale = static_cast<float>(program_.scale);
    options.activation = program_.activation;
    if (program_.bias >= 0) options.bias = &inputs[static_cast<size_t>(program_.bias)];
    if (program_.residual >= 0) {
      QX_ASSIGN_OR_RETURN(residual, Matrix::of(inputs[static_cast<size_t>(program_.residual)], true));
      options.residual = &residual.view();
    }
    if (program_.multiplier >= 0) {
      QX_ASSIGN_OR_RETURN(const Matrix multiplier, Matrix::of(inputs[static_cast<size_t>(program_.multiplier)], true));
      options.residual = nullptr;
      QX_RETURN_IF_ERROR(gemm(left.view(), result.view(), options));
      multiplyAdd(result.view(), multiplier.view(), program_.residual >= 0 ? &residual.view() : nullptr);
    } else {
      QX_RETURN_IF_ERROR(gemm(left.view(), result.view(), options));
    }
    result.writeTo(output);
    return ok_status();
  }

  const ProductProgram program_;
};

}  // namespace

std::shared_ptr<const Kernel> createProductKernel(const ProductProgram& program) {
  return std::make_shared<ProductKernel>(program);
}

}  // namespace qx::compiler
