#include "quincunx/kernels/cross_entropy/cross_entropy_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace qx::kernels {
namespace {

double log_sum_exp(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double value : logits) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

}  // namespace

double cross_entropy_reference(std::span<const double> logits, int64_t target, double label_smoothing) {
  const double lse = log_sum_exp(logits);
  double all = 0;
  for (const double value : logits) all += lse - value;
  return (1 - label_smoothing) * (lse - logits[static_cast<size_t>(target)]) +
         label_smoothing * all / static_cast<double>(logits.size());
}

void cross_entropy_gradient_reference(std::span<const double> logits, int64_t target, double label_smoothing,
                                      std::span<double> gradient) {
  const double lse = log_sum_exp(logits);
  const double even = label_smoothing / static_cast<double>(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) gradient[i] = std::exp(logits[i] - lse) - even;
  gradient[static_cast<size_t>(target)] -= 1 - label_smoothing;
}

}  // namespace qx::kernels
