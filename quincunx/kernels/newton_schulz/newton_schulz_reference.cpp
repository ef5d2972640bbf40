#include "quincunx/kernels/newton_schulz/newton_schulz_reference.h"

#include <cmath>
#include <vector>

namespace qx::kernels {
namespace {

using Matrix = std::vector<double>;

// out[rows, cols] = left[rows, inner] * right[inner, cols]
Matrix product(const Matrix& left, const Matrix& right, int64_t rows, int64_t inner, int64_t cols) {
  Matrix out(static_cast<size_t>(rows * cols), 0.0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < inner; ++k) {
      for (int64_t j = 0; j < cols; ++j) out[i * cols + j] += left[i * inner + k] * right[k * cols + j];
    }
  }
  return out;
}

Matrix transposed(const Matrix& matrix, int64_t rows, int64_t cols) {
  Matrix out(matrix.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) out[j * rows + i] = matrix[i * cols + j];
  }
  return out;
}

}  // namespace

void newton_schulz_reference(const double* input, int64_t rows, int64_t cols, std::span<const NewtonSchulzStep> steps,
                             double eps, double* output) {
  Matrix x(input, input + rows * cols);
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::sqrt(squares) + eps;

  for (const NewtonSchulzStep& step : steps) {
    const Matrix gram = product(x, transposed(x, rows, cols), rows, cols, rows);
    Matrix polynomial = product(gram, gram, rows, rows, rows);
    for (size_t i = 0; i < polynomial.size(); ++i) polynomial[i] = step.b * gram[i] + step.c * polynomial[i];
    const Matrix update = product(polynomial, x, rows, rows, cols);
    for (size_t i = 0; i < x.size(); ++i) x[i] = step.a * x[i] + update[i];
  }
  for (size_t i = 0; i < x.size(); ++i) output[i] = x[i];
}

}  // namespace qx::kernels
