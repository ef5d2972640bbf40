#include "quincunx/kernels/embedding/embedding_reference.h"

#include <cstddef>

namespace qx::kernels {

void embedding_bag_reference(std::span<const double> table, std::span<const int64_t> bag, BagMode mode,
                             std::span<double> output) {
  for (size_t d = 0; d < output.size(); ++d) {
    output[d] = 0;
    for (const int64_t row : bag) output[d] += table[static_cast<size_t>(row) * output.size() + d];
    if (mode == BagMode::kMean && !bag.empty()) output[d] /= static_cast<double>(bag.size());
  }
}

}  // namespace qx::kernels
