// Softmax of dense rows and of columns side by side: the arithmetic below softmax.h.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"

namespace qx::kernels {

// Elements of scratch memory for `width` of a row: a kernel writes whole vectors.
constexpr int64_t padded_width(int64_t width) { return (width + 63) / 64 * 64; }

// Rows of `count` elements. While the maximum or the sum of one row is being gathered the next one is read.
struct SoftmaxRows {
  static constexpr int64_t kMaxRows = 4;

  DType dtype;
  int64_t count;
  int64_t num_rows;
  const void* x[kMaxRows];
  void* y[kMaxRows];  // may be x
  float* terms;       // num_rows * padded_width(count); null where y is f32 and takes them itself
  bool stream;        // y does not fit into the caches and is aligned to a vector
  int64_t ahead;      // bytes from a row of x to the one that is to be fetched beside it, or 0
};
void softmax_rows(const SoftmaxRows& rows);
void log_softmax_rows(const SoftmaxRows& rows);

// Columns of `rows` elements, `width` of them side by side: row r starts r * x_stride elements after x.
struct SoftmaxPanel {
  DType dtype;
  const void* x;
  int64_t x_stride;
  void* y;
  int64_t y_stride;
  int64_t rows;
  int64_t width;
  float* work;   // 3 * padded_width(width)
  float* terms;  // rows * padded_width(width), unused by the logarithm; null where y is f32 and takes them itself
  bool stream;
  int64_t ahead;  // bytes from an element of x to the one that is to be fetched beside it, or 0
};
void softmax_panel(const SoftmaxPanel& panel);
void log_softmax_panel(const SoftmaxPanel& panel);

}  // namespace qx::kernels
