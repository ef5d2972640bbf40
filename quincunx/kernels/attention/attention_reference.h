// The scalar reference of attention.h, in double precision, for one query.
#pragma once

#include <span>
#include <vector>

namespace qx::kernels {

struct AttentionRow {
  std::vector<double> output;
  double log_sum_exp;
};

// keys and values hold the visible rows one after another: keys.size() / query.size() of them.
AttentionRow attention_reference(std::span<const double> query, std::span<const double> keys,
                                 std::span<const double> values, size_t value_dim, double scale);

}  // namespace qx::kernels
