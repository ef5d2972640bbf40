// The textbook derivative of softmax(scale q k^T + bias) v and of its log-sum-exp, in double precision.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace qx::kernels {

// Rows of contiguous tensors, whatever their leading dimensions.
struct GradientProblem {
  const std::vector<float>& query;
  const std::vector<float>& key;
  const std::vector<float>& value;
  const std::vector<float>& output_grad;
  const std::vector<float>& lse_grad;
  int64_t head_dim, value_dim;
};

class ReferenceGradients {
 public:
  explicit ReferenceGradients(const GradientProblem& problem)
      : query(problem.query.size()),
        key(problem.key.size()),
        value(problem.value.size()),
        problem_(problem),
        scale_(1 / std::sqrt(static_cast<double>(problem.head_dim))) {}

  // What query row `row` adds, which sees the key rows `keys` under biases, one each; no biases are zeros.
  void add_row(int64_t row, const std::vector<int64_t>& keys, const std::vector<double>& biases = {}) {
    const GradientProblem& p = problem_;
    const float* q = p.query.data() + row * p.head_dim;
    const float* g = p.output_grad.data() + row * p.value_dim;
    std::vector<double> weights, grads;
    double sum = 0, mean = 0;
    for (size_t n = 0; n < keys.size(); ++n) {
      const double bias = biases.empty() ? 0 : biases[n];
      weights.push_back(std::exp(scale_ * dot(q, p.key.data() + keys[n] * p.head_dim, p.head_dim) + bias));
      grads.push_back(dot(g, p.value.data() + keys[n] * p.value_dim, p.value_dim));
      sum += weights.back();
      mean += weights.back() * grads.back();
    }
    if (sum == 0) return;
    for (size_t n = 0; n < keys.size(); ++n) {
      const double weight = weights[n] / sum;
      const double grad = weight * (grads[n] - mean / sum + p.lse_grad[static_cast<size_t>(row)]) * scale_;
      for (int64_t i = 0; i < p.head_dim; ++i) {
        const auto at_query = static_cast<size_t>(row * p.head_dim + i);
        const auto at_key = static_cast<size_t>(keys[n] * p.head_dim + i);
        query[at_query] += grad * p.key[at_key];
        key[at_key] += grad * p.query[at_query];
      }
      for (int64_t i = 0; i < p.value_dim; ++i) {
        value[static_cast<size_t>(keys[n] * p.value_dim + i)] += weight * g[i];
      }
    }
  }

  std::vector<double> query, key, value;

 private:
  static double dot(const float* a, const float* b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  }

  GradientProblem problem_;
  double scale_;
};

inline void expect_gradient_near(const std::vector<float>& actual, const std::vector<double>& expected,
                                 double tolerance, const char* name) {
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance) << name << " element " << i;
}

}  // namespace qx::kernels
