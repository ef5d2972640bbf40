#include "quincunx/kernels/rope/rope_reference.h"

#include <algorithm>
#include <cstddef>

namespace qx::kernels {

void rope_reference(RopeForm form, std::span<const double> x, std::span<const double> cos, std::span<const double> sin,
                    std::span<double> y) {
  std::copy(x.begin(), x.end(), y.begin());
  const size_t pairs = cos.size();
  for (size_t i = 0; i < pairs; ++i) {
    const size_t first = form == RopeForm::kHalfSplit ? i : 2 * i;
    const size_t second = form == RopeForm::kHalfSplit ? i + pairs : 2 * i + 1;
    y[first] = x[first] * cos[i] - x[second] * sin[i];
    y[second] = x[second] * cos[i] + x[first] * sin[i];
  }
}

}  // namespace qx::kernels
