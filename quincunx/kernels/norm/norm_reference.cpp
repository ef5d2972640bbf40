#include "quincunx/kernels/norm/norm_reference.h"

#include <cmath>
#include <cstddef>

namespace qx::kernels {

void rms_norm_reference(std::span<const double> x, std::span<const double> weight, double eps, std::span<double> y) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * (weight.empty() ? 1 : weight[i]);
}

void layer_norm_reference(std::span<const double> x, std::span<const double> weight, std::span<const double> bias,
                          double eps, std::span<double> y) {
  const auto count = static_cast<double>(x.size());
  double sum = 0;
  for (const double value : x) sum += value;
  const double mean = sum / count;
  double squares = 0;
  for (const double value : x) squares += (value - mean) * (value - mean);
  const double scale = 1 / std::sqrt(squares / count + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) * scale * (weight.empty() ? 1 : weight[i]) + (bias.empty() ? 0 : bias[i]);
  }
}

void group_norm_reference(std::span<const double> x, std::span<const double> weight, std::span<const double> bias,
                          double eps, std::span<double> y) {
  layer_norm_reference(x, {}, {}, eps, y);
  const size_t plane = x.size() / weight.size();
  for (size_t i = 0; i < x.size(); ++i) y[i] = y[i] * weight[i / plane] + bias[i / plane];
}

}  // namespace qx::kernels
