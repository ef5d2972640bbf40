#include "quincunx/kernels/attention/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace qx::kernels {

AttentionRow attention_reference(std::span<const double> query, std::span<const double> keys,
                                 std::span<const double> values, size_t value_dim, double scale) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const size_t num_keys = keys.size() / query.size();
  std::vector<double> scores(num_keys);
  double largest = -kInfinity;
  for (size_t j = 0; j < num_keys; ++j) {
    for (size_t i = 0; i < query.size(); ++i) scores[j] += query[i] * keys[j * query.size() + i];
    scores[j] *= scale;
    largest = std::max(largest, scores[j]);
  }
  AttentionRow row{std::vector<double>(value_dim), -kInfinity};
  if (largest == -kInfinity) return row;
  double sum = 0;
  for (size_t j = 0; j < num_keys; ++j) {
    const double weight = std::exp(scores[j] - largest);
    sum += weight;
    for (size_t i = 0; i < value_dim; ++i) row.output[i] += weight * values[j * value_dim + i];
  }
  for (double& element : row.output) element /= sum;
  row.log_sum_exp = largest + std::log(sum);
  return row;
}

}  // namespace qx::kernels
