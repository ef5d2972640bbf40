#include "quincunx/kernels/gemm/gemm_reference.h"

#include <cmath>
#include <numbers>

namespace qx::kernels {

double activation_reference(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return x < 0.0 ? 0.0 : x;
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf: return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
    case Activation::kSilu: return x / (1.0 + std::exp(-x));
  }
  return x;
}

void gemm_reference(const float* a, const float* b, int64_t rows, int64_t inner, int64_t columns, float scale,
                    const float* bias, Activation activation, const float* residual, double* output) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0.0;
      for (int64_t k = 0; k < inner; ++k) sum += static_cast<double>(a[i * inner + k]) * b[k * columns + j];
      const double x = scale * sum + (bias != nullptr ? bias[j] : 0.0);
      output[i * columns + j] =
          activation_reference(activation, x) + (residual != nullptr ? residual[i * columns + j] : 0.0);
    }
  }
}

}  // namespace qx::kernels
