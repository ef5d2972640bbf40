#include "quincunx/kernels/newton_schulz/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/newton_schulz/newton_schulz_reference.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

struct Batch {
  int64_t count, rows, cols;
};

// One matrix in place, contiguous.
void orthogonalise(std::vector<double>& matrix, const Batch& batch, const NewtonSchulzOptions& options) {
  double largest = 0.0;
  bool finite = true;
  for (const double value : matrix) {
    finite = finite && std::isfinite(value);
    largest = std::max(largest, std::abs(value));
  }
  if (!finite) return std::fill(matrix.begin(), matrix.end(), std::numeric_limits<double>::quiet_NaN());
  if (largest == 0.0) return;
  const int exponent = -std::ilogb(largest);
  for (double& value : matrix) value = std::scalbn(value, exponent);
  newton_schulz_reference(matrix.data(), batch.rows, batch.cols, options.coefficients, options.eps, matrix.data());
}

Status check_options(const NewtonSchulzOptions& options) {
  if (options.coefficients.empty()) {
    return invalid_argument("coefficients: expected at least one triple (a, b, c), got none");
  }
  for (size_t i = 0; i < options.coefficients.size(); ++i) {
    const NewtonSchulzStep& step = options.coefficients[i];
    if (!std::isfinite(step.a) || !std::isfinite(step.b) || !std::isfinite(step.c)) {
      return invalid_argument("coefficients[" + std::to_string(i) + "]: expected finite numbers, got (" +
                              std::to_string(step.a) + ", " + std::to_string(step.b) + ", " + std::to_string(step.c) +
                              ")");
    }
  }
  if (!std::isfinite(options.eps) || options.eps < 0.0f) {
    return invalid_argument("eps: expected a finite number that is not negative, got " + std::to_string(options.eps));
  }
  return ok_status();
}

Status check_tensors(const TensorView& input, const TensorView& output) {
  if (input.num_dims() != 2 && input.num_dims() != 3) {
    return invalid_argument("input: expected [rows, cols] or [batch, rows, cols], got " + input.to_string());
  }
  QX_RETURN_IF_ERROR(check_f32_operand("input", input));
  QX_RETURN_IF_ERROR(check_f32_operand("output", output));
  if (!std::ranges::equal(input.shape(), output.shape())) {
    return invalid_argument("output: expected the shape of input, " + input.to_string() + ", got " +
                            output.to_string());
  }
  QX_RETURN_IF_ERROR(check_output_writable(output));
  return is_same_view(input, output) ? ok_status() : check_output_apart("input", input, output);
}

}  // namespace

Status newton_schulz(const TensorView& input, const TensorView& output, const NewtonSchulzOptions& options) {
  QX_RETURN_IF_ERROR(check_options(options));
  QX_RETURN_IF_ERROR(check_tensors(input, output));
  const int dims = input.num_dims();
  const Batch batch{dims == 3 ? input.size(0) : 1, input.size(-2), input.size(-1)};
  const auto at = [&](const TensorView& view, int64_t b, int64_t i, int64_t j) -> float& {
    return view.data_as<float>()[(dims == 3 ? b * view.stride(0) : 0) + i * view.stride(-2) + j * view.stride(-1)];
  };
  for (int64_t b = 0; b < batch.count; ++b) {
    std::vector<double> matrix;
    for (int64_t i = 0; i < batch.rows; ++i) {
      for (int64_t j = 0; j < batch.cols; ++j) matrix.push_back(at(input, b, i, j));
    }
    orthogonalise(matrix, batch, options);
    for (int64_t i = 0; i < batch.rows; ++i) {
      for (int64_t j = 0; j < batch.cols; ++j) {
        at(output, b, i, j) = static_cast<float>(matrix[static_cast<size_t>(i * batch.cols + j)]);
      }
    }
  }
  return ok_status();
}

NewtonSchulzForm newton_schulz_resolved_form(int64_t rows, int64_t cols, NewtonSchulzForm form) {
  if (form != NewtonSchulzForm::kAuto) return form;
  const int64_t small = std::min(rows, cols);
  const int64_t large = std::max(rows, cols);
  return large > 2 * small ? NewtonSchulzForm::kGram : NewtonSchulzForm::kDirect;
}

double newton_schulz_flops(int64_t rows, int64_t cols, int num_steps, NewtonSchulzForm form) {
  const double m = static_cast<double>(std::min(rows, cols));
  const double n = static_cast<double>(std::max(rows, cols));
  const double steps = num_steps;
  const double symmetric = m * m * m;     // m x m x m, the upper half only
  const double gram = m * m * n;          // X X^T, the upper half only
  const double apply = 2.0 * m * m * n;   // Q X
  switch (newton_schulz_resolved_form(rows, cols, form)) {
    case NewtonSchulzForm::kAuto:
    case NewtonSchulzForm::kDirect: return steps * (gram + symmetric + apply);
    case NewtonSchulzForm::kGram: {
      const double runs = num_steps > 2 ? 2.0 : 1.0;
      // A step: R^2, Q P, and, but in the last step of a run, R P and (R P) P.
      return runs * (gram + apply) + symmetric * (2.0 * steps - runs + 2.0 * (steps - runs));
    }
    case NewtonSchulzForm::kGramPure: return gram + apply + symmetric * (2.0 * steps - 1.0 + 2.0 * (steps - 1.0));
  }
  return 0.0;
}

int64_t newton_schulz_workspace_bytes(int64_t rows, int64_t cols) {
  return static_cast<int64_t>(sizeof(double)) * (3 * rows * cols + 3 * rows * rows);
}

}  // namespace qx::kernels
