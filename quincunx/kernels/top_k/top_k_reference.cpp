#include "quincunx/kernels/top_k/top_k_reference.h"

#include <cmath>
#include <cstddef>
#include <utility>

namespace qx::kernels {
namespace {

bool is_less(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

}  // namespace

std::vector<int64_t> sorted_indices_reference(std::span<const float> x, bool descending) {
  std::vector<int64_t> order;
  // Insertion behind all that do not come after: stable by construction.
  for (size_t i = 0; i < x.size(); ++i) {
    order.push_back(static_cast<int64_t>(i));
    for (size_t k = i; k > 0; --k) {
      const float before = x[static_cast<size_t>(order[k - 1])];
      if (descending ? !is_less(before, x[i]) : !is_less(x[i], before)) break;
      std::swap(order[k], order[k - 1]);
    }
  }
  return order;
}

}  // namespace qx::kernels
