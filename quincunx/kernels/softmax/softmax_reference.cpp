#include "quincunx/kernels/softmax/softmax_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace qx::kernels {

void softmax_reference(std::span<const double> x, std::span<double> y) {
  if (x.empty()) return;
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += y[i] = std::exp(x[i] - largest);
  for (double& value : y) value /= sum;
}

void log_softmax_reference(std::span<const double> x, std::span<double> y) {
  if (x.empty()) return;
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - largest);
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] - largest - std::log(sum);
}

}  // namespace qx::kernels
