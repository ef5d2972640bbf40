#include "quincunx/kernels/low_precision_gemm/low_precision_gemm_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quincunx/kernels/gemm/gemm_reference.h"
#include "quincunx/kernels/low_precision_gemm/weight_layout.h"

namespace qx::kernels {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void round_dynamically(const float* values, int64_t count, double* rounded) {
  float largest = 0.0f;
  bool is_finite = true;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(values[i]));
    is_finite = is_finite && std::isfinite(values[i]);
  }
  const float lift = largest < 0x1p-100f ? 0x1p64f : 1.0f;
  const float inverse = 127.0f / (largest * lift);
  const float scale = largest * lift / 127.0f / lift;
  for (int64_t i = 0; i < count; ++i) {
    const double level = largest == 0.0f ? 0.0 : std::nearbyint(values[i] * lift * inverse);
    rounded[i] = is_finite ? level * scale : kNaN;
  }
}

void round_statically(const float* values, int64_t count, float scale, int32_t zero_point, double* rounded) {
  const bool has_nan = std::any_of(values, values + count, [](float x) { return std::isnan(x); });
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < count; ++i) {
    const double level = std::clamp<double>(std::nearbyint(values[i] * inverse) + zero_point, -128.0, 127.0);
    rounded[i] = has_nan ? kNaN : (level - zero_point) * scale;
  }
}

}  // namespace

std::vector<double> rounded_input_reference(const float* a, int64_t rows, int64_t inner, WeightFormat format,
                                            const LowPrecisionOptions& options) {
  std::vector<double> rounded(a, a + rows * inner);
  if (options.input == InputQuantization::kNone) return rounded;
  const int64_t group = is_grouped(format) ? kGroupLength : std::max<int64_t>(inner, 1);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < inner; k += group) {
      const int64_t count = std::min(group, inner - k);
      const float* values = a + i * inner + k;
      double* to = rounded.data() + i * inner + k;
      if (options.input == InputQuantization::kDynamic) {
        round_dynamically(values, count, to);
      } else {
        round_statically(values, count, options.input_scale, options.input_zero_point, to);
      }
    }
  }
  return rounded;
}

void low_precision_gemm_reference(const float* a, const float* weight, int64_t rows, int64_t inner, int64_t columns,
                                  WeightFormat format, const LowPrecisionOptions& options, const float* bias,
                                  const float* residual, double* output) {
  const std::vector<double> input = rounded_input_reference(a, rows, inner, format, options);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = bias != nullptr ? bias[j] : 0.0;
      for (int64_t k = 0; k < inner; ++k) sum += input[i * inner + k] * weight[k * columns + j];
      output[i * columns + j] =
          activation_reference(options.activation, sum) + (residual != nullptr ? residual[i * columns + j] : 0.0);
    }
  }
}

}  // namespace qx::kernels
