// What the kernels of elementwise functions take: a run of dense elements.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"

namespace qx::kernels {

// y[i] = function(x[i]), times factor[i] where there is one. f32, bf16 or f16 all three; y may be x or factor.
struct ElementRow {
  DType dtype;
  const void* x;
  const void* factor;  // may be null
  void* y;
  int64_t count;
  bool stream;    // y does not fit into the caches and is aligned to a vector
  int64_t ahead;  // bytes from what is read to what is fetched beside it, or 0
};

}  // namespace qx::kernels
