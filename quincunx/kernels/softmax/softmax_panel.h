// Columns side by side, of which softmax takes each for itself.
#pragma once

#include <cstdint>

namespace qx::kernels {

// Row r starts at x + r * x_stride and is written to y + r * y_stride; y may be x.
struct SoftmaxPanel {
  const float* x;
  int64_t x_stride;
  float* y;
  int64_t y_stride;
  int64_t rows;
};

}  // namespace qx::kernels
