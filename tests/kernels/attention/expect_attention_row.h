// Compares one row of an attention kernel with the reference, within a derived tolerance.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "quincunx/kernels/attention/attention_reference.h"

namespace qx::kernels {

// A query and the rows that it sees, one after another.
struct AttentionRowProblem {
  std::vector<double> query, keys, values;
  double scale;
};

// What a kernel made of query row `row` of head `head`.
struct AttentionRowResult {
  int64_t batch, head, row;
  std::span<const float> output;
  float log_sum_exp;
};

// What a row may lose beside the roundings of dense attention in f32.
struct ExtraRoundings {
  double of_weights = 0;        // how many more roundings a weight has
  double of_output = 0;         // relative to the output
  double of_small_outputs = 0;  // absolute
};

inline std::vector<double> slice(const std::vector<float>& values, int64_t first, int64_t count) {
  return {values.begin() + first, values.begin() + first + count};
}

// A score is a sum of D products: its rounding error grows like sqrt(D) of |q| |k| scale (Higham and Mary, 2019; 6
// standard deviations). It moves a weight by that much, relatively, as do the roundings of exp and of the sums over n
// keys. The output is a weighted mean of values, so it moves by twice that times the largest value.
inline double attention_tolerance(const AttentionRowProblem& problem, double extra_weight_roundings) {
  const size_t head_dim = problem.query.size(), num_keys = problem.keys.size() / head_dim;
  double longest = 0;
  for (size_t j = 0; j < num_keys; ++j) {
    double products = 0;
    for (size_t i = 0; i < head_dim; ++i) products += std::abs(problem.query[i] * problem.keys[j * head_dim + i]);
    longest = std::max(longest, products);
  }
  const double score = 6 * std::sqrt(static_cast<double>(head_dim) + 2) * longest * std::abs(problem.scale);
  return 2 * (score + 6 * std::sqrt(static_cast<double>(num_keys)) + 4 + extra_weight_roundings) * 0x1p-24;
}

inline void expect_attention_row(const AttentionRowProblem& problem, const AttentionRowResult& actual,
                                 const ExtraRoundings& extra = {}) {
  const size_t value_dim = actual.output.size();
  const AttentionRow expected =
      attention_reference(problem.query, problem.keys, problem.values, value_dim, problem.scale);
  const double relative = attention_tolerance(problem, extra.of_weights);
  double largest = 0;
  for (const double value : problem.values) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < value_dim; ++i) {
    const double tolerance =
        relative * largest + extra.of_output * std::abs(expected.output[i]) + extra.of_small_outputs;
    ASSERT_NEAR(actual.output[i], expected.output[i], tolerance)
        << "batch " << actual.batch << " head " << actual.head << " row " << actual.row << " column " << i;
  }
  if (problem.keys.empty()) {
    ASSERT_EQ(actual.log_sum_exp, -std::numeric_limits<float>::infinity());
  } else {
    ASSERT_NEAR(actual.log_sum_exp, expected.log_sum_exp, relative + 0x1p-23 * std::abs(expected.log_sum_exp));
  }
}

}  // namespace qx::kernels
