// What the kernels of the cross-entropy take: logits of one row, side by side.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"

namespace qx::kernels {

struct LogitBlock {
  DType dtype;
  const void* x;
  int64_t count;
  bool stream;    // what is written of this dtype does not fit into the caches and is aligned to a vector
  int64_t ahead;  // bytes from a logit to the one that is to be fetched beside it, or 0
};

}  // namespace qx::kernels
