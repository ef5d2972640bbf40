// What the kernel of dense heads takes: the heads of one position.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"

namespace qx::kernels {

struct HeadRows {
  DType dtype;
  const void* x;
  int64_t x_step;  // elements from a head to the next
  void* y;         // may be x
  int64_t y_step;
  int64_t num_heads;
  int64_t head_dim;
  int64_t pairs;
  bool stream;    // y does not fit into the caches, and its halves are aligned to vectors
  int64_t ahead;  // bytes from what is read to what is fetched beside it, or 0
};

}  // namespace qx::kernels
